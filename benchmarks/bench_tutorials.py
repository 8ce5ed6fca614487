"""The programs of the Theano tutorials: microseconds per step, compared with NumPy, torch, CuPy and JAX.

The tutorial's exp loop, the blog's y = m.x + b, and logistic regression on 400 x 784, every library
in one run, taking turns; then the first and the last as functions that PyTensor compiles.
``--compile`` adds torch.compile, which takes a while to start.
"""

from __future__ import annotations

import ctypes
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bench_common import GPUINTEROP, Benchmark, Call, jax_call, optional, parser, peers, waiting

import gpuinterop as gi
from gpuinterop.devices import find_libraries

EXAMPLES = Path(__file__).parents[1] / "examples"
EMPTY = 'extern "C" __global__ void nothing(const float* x) {}'
MANY = 100  # operations in one graph, to measure a node without its launch


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def torch_graph(torch: Any, body: Callable[[], Any]) -> Any:
    """Return a captured torch graph of `body`, after calls on a side stream as torch requires."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            body()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph


def exp_loop(bench: Benchmark, libraries: dict[str, Any]) -> None:
    device, wait = bench.options.device, waiting(libraries, bench.options.device)
    host = np.random.RandomState(22).rand(230_400).astype(np.float32)
    host_out = np.empty_like(host)
    x = gi.CudaNdarray(host, device=device)
    y = gi.empty_like(x)
    own_call = lambda body: {GPUINTEROP: Call(body, wait[GPUINTEROP])}  # noqa: E731
    given, fresh = own_call(lambda: gi.exp(x, out=y)), own_call(lambda: gi.exp(x))
    graph = gi.capture(lambda: gi.exp(x, out=y), device=device)
    captured = own_call(graph.replay)

    def repeated() -> None:
        for _ in range(MANY):
            gi.exp(x, out=y)

    many = gi.capture(repeated, device=device)
    given["numpy"] = Call(lambda: np.exp(host, out=host_out), lambda: None, events=False)
    fresh["numpy"] = Call(lambda: np.exp(host), lambda: None, events=False)
    with optional(libraries, "torch", "exp") as torch:
        tx, ty = torch.from_dlpack(x), torch.from_dlpack(y)
        given["torch"] = Call(lambda: torch.exp(tx, out=ty), wait["torch"])
        fresh["torch"] = Call(lambda: torch.exp(tx), wait["torch"])
        if not bench.on_host:
            replay = torch_graph(torch, lambda: torch.exp(tx, out=ty)).replay
            captured["torch"] = Call(replay, wait["torch"])
    with optional(libraries, "cupy", "exp") as cupy:
        cx, cy = cupy.from_dlpack(x), cupy.from_dlpack(y)
        given["cupy"] = Call(lambda: cupy.exp(cx, out=cy), wait["cupy"])
        fresh["cupy"] = Call(lambda: cupy.exp(cx), wait["cupy"])
    with optional(libraries, "jax", "exp") as jax:
        fresh["jax"] = jax_call(jax, jax.jit(jax.numpy.exp), jax.numpy.asarray(host))
    if not bench.on_host:
        kernel = gi.RawKernel(EMPTY, "nothing")
        kernel((1,), (1,), x)
        loaded = kernel._loaded[gi.devices.device(device).index]
        # Launches of an empty kernel from C++ are a lower bound for every caller from Python.
        given["floor"] = Call(lambda: loaded.repeat(1000), wait[GPUINTEROP], per=1000)
    bench.loop("exp, out given", given, mark=3.1)
    bench.loop("exp, fresh result", fresh, mark=3.8)
    # The cost of a node without a launch is the lower bound of a captured call.
    captured["floor"] = Call(many.replay, wait[GPUINTEROP], per=MANY)
    bench.loop("exp, captured graph", captured, mark=2.3)
    bench.loop("exp, result on the host", own_call(lambda: np.asarray(gi.exp(x))), count=200)


def line(bench: Benchmark, libraries: dict[str, Any], n: int) -> None:
    device, wait = bench.options.device, waiting(libraries, bench.options.device)
    hosts = [np.random.RandomState(i).randn(n, n).astype(np.float32) for i in range(3)]
    m, v, b = (gi.CudaNdarray(h, device=device) for h in hosts)
    z, w = gi.empty_like(b), gi.empty_like(b)
    w.fill(0)
    calls = {GPUINTEROP: Call(lambda: gi.gemm(m, v, b, out=z), wait[GPUINTEROP])}
    with optional(libraries, "torch", "y = m.x + b") as torch:
        tm, tv, tb = (torch.from_dlpack(a) for a in (m, v, b))
        tz = torch.empty_like(tb)
        calls["torch"] = Call(lambda: torch.addmm(tb, tm, tv, out=tz), wait["torch"])
    with optional(libraries, "cupy", "y = m.x + b") as cupy:
        cm, cv, cb = (cupy.from_dlpack(a) for a in (m, v, b))
        calls["cupy"] = Call(lambda: cm @ cv + cb, wait["cupy"])
    with optional(libraries, "jax", "y = m.x + b") as jax:
        inputs = [jax.numpy.asarray(h) for h in hosts]
        highest = jax.jit(lambda m, x, b: jax.numpy.dot(m, x, precision="highest") + b)
        calls["jax"] = jax_call(jax, highest, *inputs)
    if not bench.on_host:
        with optional({GPUINTEROP: gi}, GPUINTEROP, "a bare cublasSgemm"):
            floor = bare_sgemm(m, v, w)
            floor()
            np.testing.assert_allclose(w.get(), (m @ v).get(), rtol=1e-4, atol=1e-3)
            calls["floor"] = Call(floor, wait[GPUINTEROP])
    calls["numpy"] = Call(
        lambda: hosts[0] @ hosts[1] + hosts[2], lambda: None, events=False, share=0.03
    )
    bench.loop(f"y = m.x + b, {n} x {n}", calls, count=300, mark=54)


def bare_sgemm(a: Any, b: Any, c: Any) -> Callable[[], Any]:
    """Return a bare cublasSgemm, c = 1 * a.b + 1 * c of row-major squares, on the legacy stream."""
    blas = ctypes.CDLL(find_libraries.find("cublas").path)
    handle, one, n = ctypes.c_void_p(), ctypes.c_float(1), ctypes.c_int(len(c))
    if blas.cublasCreate_v2(ctypes.byref(handle)) != 0:
        raise RuntimeError("cublasCreate failed")
    scale = ctypes.byref(one)
    # Row-major a.b is the column-major product b.a.
    p, q, r = (ctypes.c_void_p(x.ptr) for x in (b, a, c))
    given = (handle, 0, 0, n, n, n, scale, p, n, q, n, scale, r, n)

    def body() -> None:
        if blas.cublasSgemm_v2(*given) != 0:
            raise RuntimeError("cublasSgemm failed")

    return body


class Regression:
    """The tutorial's training step in plain array code, as users of each library write it."""

    def __init__(self, example: Any) -> None:
        self.rate, self.decay, self.n = example.RATE, example.DECAY, example.N
        self.x, self.y, self.w = example.data()

    def numpy(self) -> Callable[[], Any]:
        x, y, w = self.x, self.y, self.w.copy()
        state = {"w": w, "b": np.float32(0)}
        rate, decay, n = np.float32(self.rate), np.float32(self.decay), np.float32(self.n)

        def step() -> Any:
            w, b = state["w"], state["b"]
            z = x @ w + b
            p = 1 / (1 + np.exp(-z))
            xent = np.maximum(z, 0) - y * z + np.log1p(np.exp(-np.abs(z)))
            error = (p - y) / n
            state["w"] = w - rate * (x.T @ error + decay * w)
            state["b"] = b - rate * error.sum()
            return p > 0.5, xent

        self.numpy_state = state
        return step

    def gpuinterop(self, device: str) -> Callable[[], Any]:
        x, y, w = (gi.CudaNdarray(a, device=device) for a in (self.x, self.y, self.w))
        b = gi.zeros((), device=device)
        rate, decay, n = self.rate, self.decay, self.n
        self.gpuinterop_state = {"w": w, "b": b}

        def step() -> Any:
            z = x @ w + b
            p = 1 / (1 + gi.exp(-z))
            xent = gi.maximum(z, 0) - y * z + gi.log1p(gi.exp(-abs(z)))
            error = (p - y) / n
            w[...] = w - rate * (x.T @ error + decay * w)
            b[...] = b - rate * error.sum()
            return p > 0.5, xent

        return step

    def fused(self, device: str) -> Callable[[], Any]:
        """Return the step as a captured call of a fused function."""
        x, y, w = (gi.CudaNdarray(a, device=device) for a in (self.x, self.y, self.w))
        b, xent = gi.zeros((), device=device), gi.empty_like(y)
        outs = gi.empty(y.shape, dtype=bool, device=device), xent, w, b
        rate, decay, n = self.rate, self.decay, self.n

        @gi.fuse
        def step(x: Any, y: Any, w: Any, b: Any) -> Any:
            z = x @ w + b
            p = 1 / (1 + gi.exp(-z))
            xent = gi.maximum(z, 0) - y * z + gi.log1p(gi.exp(-abs(z)))
            error = (p - y) / n
            return p > 0.5, xent, w - rate * (x.T @ error + decay * w), b - rate * error.sum()

        with gi.capture(device=device) as graph:
            step(x, y, w, b, out=outs)
        return graph.replay

    def torch(self, torch: Any, device: str) -> Callable[[], Any]:
        x, y, w = (torch.tensor(a, device=device) for a in (self.x, self.y, self.w))
        b = torch.zeros((), device=device)
        rate, decay, n = self.rate, self.decay, self.n
        self.torch_state = {"w": w, "b": b}

        def step() -> Any:
            z = x @ w + b
            p = torch.sigmoid(z)
            xent = torch.clamp(z, min=0) - y * z + torch.log1p(torch.exp(-torch.abs(z)))
            error = (p - y) / n
            w.sub_(rate * (x.T @ error + decay * w))
            b.sub_(rate * error.sum())
            return p > 0.5, xent

        return step

    def cupy(self, cupy: Any) -> Callable[[], Any]:
        x, y, w = (cupy.asarray(a) for a in (self.x, self.y, self.w))
        b = cupy.zeros((), dtype="float32")
        rate, decay, n = self.rate, self.decay, self.n

        def step() -> Any:
            z = x @ w + b
            p = 1 / (1 + cupy.exp(-z))
            xent = cupy.maximum(z, 0) - y * z + cupy.log1p(cupy.exp(-cupy.abs(z)))
            error = (p - y) / n
            w[...] -= rate * (x.T @ error + decay * w)
            b[...] -= rate * error.sum()
            return p > 0.5, xent

        return step

    def jax(self, jax: Any) -> Call:
        jnp = jax.numpy
        rate, decay, n = self.rate, self.decay, self.n
        x, y = jnp.asarray(self.x), jnp.asarray(self.y)

        def compute(w: Any, b: Any, x: Any, y: Any) -> Any:
            z = jnp.dot(x, w, precision="highest") + b
            p = jax.nn.sigmoid(z)
            xent = jnp.maximum(z, 0) - y * z + jnp.log1p(jnp.exp(-jnp.abs(z)))
            error = (p - y) / n
            new = w - rate * (jnp.dot(x.T, error, precision="highest") + decay * w)
            return new, b - rate * error.sum(), p > 0.5, xent

        function = jax.jit(compute)
        state = [jnp.asarray(self.w), jnp.zeros((), "float32"), None, None]

        def body() -> None:
            state[:] = function(state[0], state[1], x, y)

        return Call(body, lambda: jax.block_until_ready(state[0]), events=False)


def regression(bench: Benchmark, libraries: dict[str, Any]) -> None:
    device, wait = bench.options.device, waiting(libraries, bench.options.device)
    module = example("logistic_regression")
    steps = 2 if bench.options.quick else module.STEPS
    row = "logistic regression, a step"
    run, exact = module.train(steps, device), module.oracle(steps)
    np.testing.assert_allclose(run["w"], exact["w"], rtol=1e-3, atol=1e-4)
    print(f"{row}: {run['nodes']} nodes, {steps} steps as accurate as float64 requires")
    others = Regression(module)
    calls = {GPUINTEROP: Call(module.Training(device).step.replay, wait[GPUINTEROP])}
    plain = others.gpuinterop(device)
    calls[f"{GPUINTEROP} plain"] = Call(plain, wait[GPUINTEROP])
    calls[f"{GPUINTEROP} plain graph"] = Call(
        gi.capture(plain, device=device).replay, wait[GPUINTEROP]
    )
    calls[f"{GPUINTEROP} fused graph"] = Call(others.fused(device), wait[GPUINTEROP])
    calls["numpy"] = Call(others.numpy(), lambda: None, events=False)
    with optional(libraries, "torch", "logistic regression") as torch:
        step = others.torch(torch, device)
        calls["torch"] = Call(step, wait["torch"])
        if not bench.on_host:
            calls["torch graph"] = Call(torch_graph(torch, step).replay, wait["torch"])
        if bench.options.compile:
            calls["torch.compile"] = Call(torch.compile(step), wait["torch"])
    with optional(libraries, "cupy", row) as cupy:
        calls["cupy"] = Call(others.cupy(cupy), wait["cupy"])
    with optional(libraries, "jax", row) as jax:
        calls["jax"] = others.jax(jax)
    bench.loop(row, calls, count=500, mark=12)


def training_step(backend: Any) -> Any:
    """The training step, compiled by PyTensor, with results on the device."""
    import pytensor
    import pytensor.tensor as pt

    module = example("logistic_regression")
    x, y, w = (pytensor.shared(value) for value in module.data())
    b = pytensor.shared(np.asarray(0, "float32"))
    p = 1 / (1 + pt.exp(-pt.dot(x, w) - b))
    xent = -y * pt.log(p) - (1 - y) * pt.log(1 - p)
    cost = xent.mean() + np.float32(module.DECAY / 2) * (w**2).sum()
    results = [backend.gpu_from_host(r) for r in (pt.cast(p > 0.5, "float32"), xent)]
    rate = np.float32(module.RATE)
    updates = [(v, v - rate * g) for v, g in zip((w, b), pytensor.grad(cost, [w, b]), strict=True)]
    return pytensor.function([], results, updates=updates)


def compiled(bench: Benchmark, libraries: dict[str, Any]) -> None:
    """The exp loop, the training step and the blog's first and last programs, compiled by PyTensor."""
    if importlib.util.find_spec("pytensor") is None:
        return print("skipped: PyTensor is not installed")
    import pytensor
    import pytensor.tensor as pt

    import gpuinterop.pytensor as backend

    device, wait = bench.options.device, waiting({}, bench.options.device)[GPUINTEROP]
    pytensor.config.cxx = ""  # nothing of these functions runs on the host in each call
    host = np.random.RandomState(22).rand(230_400).astype(np.float32)
    functions = {}
    for column, captures in ((GPUINTEROP, True), (f"{GPUINTEROP} without graphs", False)):
        backend.use(device, capture=captures)
        functions[column] = pytensor.function(
            [], backend.gpu_from_host(pt.exp(pytensor.shared(host)))
        )
    backend.use(device)
    seconds = []
    for _ in range(4):
        begin = time.perf_counter()
        step = training_step(backend)
        step()
        wait()
        seconds.append(time.perf_counter() - begin)
    n = 64 if bench.options.quick else 1000
    rng = np.random.default_rng(123)
    arrays = [rng.standard_normal((n, n), np.float32) for _ in range(4)]
    symbols = [pt.matrix(dtype="float32") for _ in range(3)]
    with_transfers = pytensor.function(symbols, pt.add(pt.dot(*symbols[:2]), symbols[2]))
    m, v, c, z = map(pytensor.shared, arrays)
    train = pytensor.function([], [], updates={z: pt.add(pt.dot(m, v), c)})
    backend.unuse()
    kept: list[Any] = [None]  # the last result, as a loop in a program holds it

    def keeping(function: Any) -> Call:
        return Call(lambda: kept.__setitem__(0, function()), wait)

    bench.loop("exp, compiled by PyTensor", {c: keeping(f) for c, f in functions.items()}, mark=2.3)
    bench.loop("logistic regression, compiled by PyTensor", {GPUINTEROP: keeping(step)}, mark=12)
    # The first time loads kernels.
    row = "logistic regression, until the end of the first call"
    bench.keep(row, {GPUINTEROP: [1e6 * s for s in seconds[1:]]}, mark=1e6)
    row = f"y = m.x + b, {n} x {n}, compiled by PyTensor"
    bench.loop(row, {GPUINTEROP: Call(train, wait)}, count=300, mark=54)
    row = f"y = m.x + b, {n} x {n}, with transfers"
    calls = {GPUINTEROP: Call(lambda: with_transfers(*arrays[:3]), wait)}
    with optional(libraries, "torch", row) as torch:
        a, x, b = map(torch.from_numpy, arrays[:3])  # pageable memory, as the arrays have
        calls["torch"] = Call(
            lambda: torch.addmm(b.to(device), a.to(device), x.to(device)).to("cpu"), wait
        )
    bench.loop(row, calls, count=50)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--compile", action="store_true", help="torch.compile as well")
    chosen = options.parse_args()
    bench = Benchmark("the old tutorials' programs", "us", chosen)
    libraries = peers(chosen)
    exp_loop(bench, libraries)
    line(bench, libraries, 64 if chosen.quick else 1000)
    regression(bench, libraries)
    compiled(bench, libraries)
    bench.finish()


if __name__ == "__main__":
    main()
