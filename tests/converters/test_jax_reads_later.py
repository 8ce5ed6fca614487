"""JAX reads memory when it computes: writes by gpuinterop wait for that, or are refused while a jax.Array exists."""

import gc
from functools import partial

import numpy as np
import pytest
from helpers.threads import in_threads

import gpuinterop as gi

pytestmark = [pytest.mark.jax, pytest.mark.lifetime]

N = 500


@pytest.fixture(scope="module")
def jax(device):
    found = pytest.importorskip("jax")
    if device != "cpu" and all(d.platform == "cpu" for d in found.devices()):
        pytest.skip("jax has no GPU")
    return found


@pytest.fixture(scope="module")
def slow(jax):
    """A computation that runs for some time after the call has returned."""

    @jax.jit
    def compute(a):
        return jax.lax.fori_loop(0, 60, lambda _, a: a @ a * (1 / N), a).sum()

    compute(jax.numpy.ones((N, N))).block_until_ready()
    return compute


@pytest.fixture(scope="module")
def sum_of_ones(jax, slow):
    return float(slow(jax.numpy.ones((N, N))))


def ways_to_lend(jax):
    return [lambda x: gi.to(x, "jax"), jax.dlpack.from_dlpack, jax.numpy.from_dlpack]


RESET = gi.fuse(lambda x: (x * 0).sum(axis=0))
NOTHING = gi.ElementwiseKernel("T x", "T y", "y = x * 0", host=lambda x: x * 0)
WRITES = {
    "fill": lambda x: x.fill(0),
    "x[...] = number": lambda x: x.__setitem__(..., 0),
    "x[...] = array": lambda x: x.__setitem__(..., np.zeros(N, "float32")),
    "out=": lambda x: gi.multiply(x, 0, out=x),
    "in place": lambda x: x.__imul__(0),
    "out= of a product": lambda x: gi.dot(x * 0, x * 0, out=x),
    "out= of a reduction": lambda x: (x * 0).sum(axis=0, out=x[0]),
    "out= of fuse": lambda x: gi.fuse(lambda a: a * 0)(x, out=x),
    "out= of a fused reduction": lambda x: RESET(x, out=x[0]),
    "out= of ElementwiseKernel": lambda x: NOTHING(x, out=x),
    "out= of concatenate": lambda x: gi.concatenate([x[:1] * 0, x[1:] * 0], out=x),
    "copyto": lambda x: np.copyto(x, 0),
    "take": lambda x: gi.take(x * 0, np.arange(N), axis=0, out=x),
    "x[indices] = number": lambda x: x.__setitem__(np.arange(N), 0),
    "x[mask] = number": lambda x: x.__setitem__(x > 0, 0),
    "x[mask] = array": lambda x: x.__setitem__(x > 0, np.zeros(x.size, "float32")),
    "add.at": lambda x: gi.add.at(x, np.arange(N), -1),
}


# The ways to lend take turns; the next test tries each with each write.
@pytest.mark.parametrize(
    ("write", "way"), [(w, i % 3) for i, w in enumerate(WRITES.values())], ids=WRITES
)
def test_a_write_waits_for_the_computation_that_reads_the_memory(
    jax, slow, sum_of_ones, write, way, device
):
    x = gi.ones((N, N), device=device)
    late = slow(ways_to_lend(jax)[way](x))
    write(x)
    assert float(late) == sum_of_ones
    assert x[0].tolist() == [0] * N


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_is_refused_while_a_jax_array_shares_the_memory(jax, write, device):
    x = gi.ones((N, N), device=device)
    for lend in ways_to_lend(jax):
        j = lend(x)
        with pytest.raises(gi.ReadOnlyError, match="jax") as refused:
            write(x)
        assert "del" in refused.value.fix
        assert float(j.sum()) == N * N
        del j
        gc.collect()
    write(x)


def test_torch_functions_that_write_are_writes(jax):
    torch = pytest.importorskip("torch")
    y = gi.zeros((4, 16), device="cpu")
    j = gi.to(y, "jax")
    with pytest.raises(gi.ReadOnlyError, match=r"torch\.mul: .*jax"):
        torch.mul(torch.ones(4, 16), 7, out=y)
    for write in (torch.exp_, partial(torch.nn.functional.elu, inplace=True)):
        with pytest.raises(gi.ReadOnlyError, match=r"torch\..*jax"):
            write(y)
    assert float(j.sum()) == 0
    del j
    torch.mul(torch.ones(4, 16), 7, out=y)
    assert y.tolist() == [[7] * 16] * 4


def test_memory_next_to_the_lent_elements_can_be_written(jax, device):
    x = gi.zeros((4, 64), device=device)
    j = gi.to(x[1], "jax")
    x[2:] = 5
    x[0].fill(6)
    for write in (lambda: x.fill(1), lambda: x[:2].fill(1), lambda: x[1, 60:].fill(1)):
        with pytest.raises(gi.ReadOnlyError):
            write()
    assert j.tolist() == [0] * 64


def test_views_of_a_deleted_jax_array_still_protect_the_memory(jax):
    x = gi.zeros(64, device="cpu")
    seen = np.asarray(gi.to(x, "jax"))
    with pytest.raises(gi.ReadOnlyError):
        x.fill(1)
    assert seen.tolist() == [0] * 64
    del seen
    x.fill(1)


def test_copies_made_for_jax_are_not_loans(jax, device):
    x = gi.zeros((4, 64), device=device)
    j = gi.to(x[:, ::-2], "jax", copyif=True)
    x.fill(1)
    assert float(j.sum()) == 0


def test_a_replay_waits_for_readers_of_its_outputs(jax, slow, sum_of_ones, device):
    x, y = gi.ones((N, N), device=device), gi.empty((N, N), device=device)

    def both(a):
        gi.multiply(a, 1, out=y)
        return a * 1

    graph = gi.capture(both, x)
    for written in (graph().ravel().reshape(N, N), y):
        x.fill(1)
        graph()
        late = slow(gi.to(written, "jax"))
        x.fill(0)
        graph()
        assert float(late) == sum_of_ones
        j = gi.to(written, "jax")
        with pytest.raises(gi.ReadOnlyError, match="replay"):
            graph()
        del j


def test_recording_a_write_does_not_wait(jax, device):
    x = gi.ones(64, device=device)
    j = gi.to(x, "jax")
    with gi.capture(device=device) as graph:
        x.fill(2)
    with pytest.raises(gi.ReadOnlyError):
        graph.replay()
    del j
    graph.replay()
    assert x.tolist() == [2] * 64


def test_the_plan_names_the_late_read(jax, device):
    x = gi.ones(64, device=device)
    plan = gi.explain(x, "jax")
    assert plan.shared
    assert "block_until_ready" in str(plan)
    assert "ReadOnlyError" in gi.converters.to_jax.__doc__


@pytest.mark.slow
def test_ten_thousand_computations_read_what_they_were_lent(jax, device):
    compute = jax.jit(lambda a: (a @ a)[0, 0])
    x = gi.zeros((64, 64), device=device)
    for _ in range(20):  # each write looks at all arrays of JAX
        late = []
        for i in range(500):
            x.fill(i % 97)
            late.append(compute(gi.to(x, "jax")))
        assert [float(value) for value in late] == [64 * (i % 97) ** 2 for i in range(500)]


# A stand-in for JAX at the level of the protocol: only the module name of the caller identifies a consumer.
CONSUMER = {"__name__": "jax.consumer"}
exec("def take(x): return x.__dlpack__(max_version=(1, 0))", CONSUMER)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_memory_that_is_never_returned_is_refused(write, device, monkeypatch):
    pytest.importorskip("jax")
    monkeypatch.setattr(gi.converters.jax, "_PATIENCE", 0.01)
    x = gi.ones((N, N), device=device)
    for _ in range(2):  # the second call is a cached one
        held = CONSUMER["take"](x)
        with pytest.raises(gi.ReadOnlyError, match="has not returned"):
            write(x)
        assert x[0].tolist() == [1] * N
        del held
        write(x)
        x.fill(1)


def test_loans_of_many_threads_are_all_returned():
    pytest.importorskip("jax")
    x = gi.zeros(64, device="cpu")

    def lend(_):
        for _ in range(200):
            CONSUMER["take"](x)

    in_threads(lend, range(8))
    x.fill(1)
