"""The targets of docs/reference/performance.md, and explanations of missed targets and of faster libraries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """The target of a row, and the figures of other libraries and of the floor when it was set."""

    record: str
    row: str
    title: str
    value: float
    then: dict[str, float]  # the strictest one scales the target


@dataclass(frozen=True)
class Promise:
    """A target without a row in the tables above, with its figure; both in the printed unit."""

    record: str
    row: str
    title: str
    unit: str
    value: float
    mark: float
    contender: str = ""  # "" for the first figure of gpuinterop

    @property
    def met(self) -> bool:
        return self.value <= self.mark


CONVERSIONS = (
    Mark("converters", "CudaNdarray -> torch", "`CudaNdarray` to PyTorch", 0.6,
         {"torch.from_dlpack(cupy)": 4.3, "torch.as_tensor(cupy)": 2.8}),
    Mark("converters", "torch -> CudaNdarray", "PyTorch to `CudaNdarray`", 0.25,
         {"tvm_ffi.from_dlpack(torch)": 0.23, "cuda.core view of torch": 0.24,
          "cupy.from_dlpack(torch)": 11.7}),
    Mark("converters", "CudaNdarray -> cupy", "`CudaNdarray` to CuPy", 2.0,
         {"cupy.from_dlpack(torch)": 11.7, "cupy.asarray(torch)": 5.0}),
    Mark("converters", "cupy -> CudaNdarray", "CuPy to `CudaNdarray`", 0.5,
         {"tvm_ffi.from_dlpack(cupy)": 0.42, "cuda.core view of cupy": 0.56}),
    Mark("converters", "CudaNdarray -> PyCUDA", "`CudaNdarray` to PyCUDA", 2.6,
         {"GPUArray's constructor": 2.2}),
    Mark("converters", "CudaNdarray -> Numba", "`CudaNdarray` to Numba", 6.0,
         {"numba.cuda.as_cuda_array(cupy)": 12.9}),
    Mark("exchange", "export, cuda", "`x.__dlpack__()`", 0.2,
         {"c.__dlpack__()": 0.25, "t.__dlpack__()": 1.85}),
    Mark("exchange", "view, cuda", "a view, `x[1:, ::2]`", 0.25, {"c.view()": 0.41}),
)  # fmt: skip
BANDWIDTH = (
    Mark(
        "bandwidth", "exp(x)", "`exp(x, out=y)`", 4100, {"torch": 4214, "cupy": 1691, "floor": 4089}
    ),
    Mark("bandwidth", "x + y", "`x + y`", 4300, {"torch": 4382, "cupy": 2530}),
    Mark("bandwidth", "X + Y.T", "`X + Y.T`", 4200, {"torch": 1635, "cupy": 1637, "floor": 4289}),
    Mark(
        "bandwidth",
        "copy of X.T",
        "copy of `X.T`",
        4000,
        {"torch": 1158, "cupy": 1157, "floor": 4143},
    ),
    Mark("bandwidth", "X + row", "`X + row`", 4000, {"torch": 2796, "cupy": 1690, "floor": 4108}),
    Mark(
        "bandwidth",
        "X + column",
        "`X + column`",
        4000,
        {"torch": 2725, "cupy": 1687, "floor": 4063},
    ),
    Mark("bandwidth", "exp(x[::-1])", "`exp(x[::-1])`", 4000, {"cupy": 1690, "floor": 4100}),
    Mark(
        "bandwidth",
        "exp(x[::2])",
        "`exp(x[::2])`",
        2800,
        {"torch": 2468, "cupy": 1681, "floor": 2892},
    ),
    Mark(
        "grid",
        "exp(X.T), float32, 16385 x 16383",
        "`exp(X.T)`, 16385 x 16383",
        4100,
        {"torch": 4152, "cupy": 1125},
    ),
    Mark(
        "grid",
        "copy of X.T, float32, 16385 x 16383",
        "copy of `X.T`, 16385 x 16383",
        3700,
        {"torch": 1110, "cupy": 1123},
    ),
    Mark(
        "grid",
        "X[1:, 1:] + 1, float32, 16385 x 16383",
        "`X[1:, 1:] + 1`, 16385 x 16383",
        4000,
        {"torch": 2776, "cupy": 1653},
    ),
    Mark(
        "grid",
        "max axis 0, float32, 16385 x 16383",
        "`X.max(axis=0)`, 16385 x 16383",
        4200,
        {"torch": 3630, "cupy": 2275},
    ),
    Mark("reductions", "sum all", "`x.sum()`", 4500, {"torch": 4361, "cupy": 4510}),
    Mark("reductions", "sum axis 0", "`X.sum(axis=0)`", 4500, {"torch": 4374, "cupy": 2489}),
    Mark("reductions", "sum axis 1", "`X.sum(axis=1)`", 4500, {"torch": 4159, "cupy": 4599}),
)
TRANSFERS = (
    Mark("transfers", "upload, 2^28", "upload of 256 MiB", 40, {"torch": 7, "cupy": 10}),
    Mark("transfers", "download, 2^28", "download of 256 MiB", 40, {}),
    Mark("transfers", "download, new memory, 2^28", "the same into new memory", 25,
         {"torch": 1.3, "cupy": 3.1}),
)  # fmt: skip
READS = (
    Mark(
        "reads",
        "x.get() of 4096 floats",
        "`x.get()` of 4,096 floats",
        9,
        {"torch": 12.4, "cupy": 12.9},
    ),
    Mark("reads", "x.item(3)", "`x.item(3)`", 8, {"torch": 9.4}),
    Mark("reads", "float(x.sum())", "`float(x.sum())`", 18, {}),
    Mark("reads", "bool((x > 0).all())", "`bool((x > 0).all())`", 30, {}),
)
PROCESSES = (
    Mark("processes", "open shared_empty, vmm, 2048 MiB", "memory of `gi.shared_empty`", 10, {}),
    Mark("processes", "open cuda.core, pool, 2048 MiB", "a pool of cuda.core", 10, {}),
)
PROGRAMS = (
    Mark("documents", "exp, out given", "`exp(x, out=y)`, 230,400 floats, in a loop", 3.1,
         {"torch": 4.1, "cupy": 5.1, "floor": 2.6}),
    Mark("documents", "exp, fresh result", "`exp(x)`, the same, a fresh result", 3.8,
         {"torch": 4.9, "cupy": 5.8, "jax": 24.0}),
    Mark("documents", "exp, captured graph", "the same as a captured graph", 2.3,
         {"torch": 2.2, "floor": 1.25}),
    Mark("documents", "y = m.x + b, 1000 x 1000", "y = m.x + b, 1000 x 1000", 54.0,
         {"torch": 58.0, "cupy": 58.1, "jax": 56.5, "floor": 53.2}),
    Mark("documents", "logistic regression, a step", "logistic regression, a training step", 12.0,
         {"torch": 113.0, "torch graph": 33.0, "torch.compile": 61.0, "jax": 37.0, "numpy": 30.0}),
)  # fmt: skip
PRODUCTS = (
    Mark("gemm", "16x262144 @ 262144x16", "16 x 262144 @ 262144 x 16", 20.0,
         {"torch": 72.0, "cupy": 72.0, "jax": 35.7}),
)  # fmt: skip

# Device "cpu", one thread. The targets keep their ratio to NumPy, whose loops both use.
HOST = (
    Mark("cpu", "x + y, 64", "`x + y`, 64 floats", 0.3, {"numpy": 0.33}),
    Mark("cpu", "x.sum(), 64", "`x.sum()`, 64", 0.9, {"numpy": 0.98}),
    Mark("cpu", "x.sum(), 2^18", "`x.sum()`, 2^18", 40.0, {"numpy": 40.0}),
    Mark("cpu", "tanh(x * y + x), fused, 64", "`tanh(x * y + x)`, fused, 64", 1.5, {"numpy": 0.92}),
    Mark("cpu", "tanh(x * y + x), fused, 2^18", "`tanh(x * y + x)`, fused, 2^18", 120.0, {"numpy": 161.0}),
    Mark("cpu", "tanh(x * y + x), fused, 2^22", "`tanh(x * y + x)`, fused, 2^22", 2500.0, {"numpy": 3797.0}),
    Mark("cpu", "x + y, replayed, 64", "`x + y` as a captured sequence, 64", 0.3, {"numpy": 0.36}),
)  # fmt: skip

LAUNCHED = "exp, out given, 2^10"

FUSED, PLAIN, NO_GRAPHS = (
    "gpuinterop fused graph", "gpuinterop plain graph", "gpuinterop without graphs",
)  # fmt: skip

# Targets without a row in the tables above: record, row, title, target (in the record's unit, or a contender, whose
# figure it is), and the contender that must reach it, if it is not the first figure of gpuinterop.
PROMISES = (
    (
        "import",
        "import gpuinterop, beyond NumPy",
        "`import gpuinterop` beyond NumPy's own import",
        60.0,
    ),
    ("exchange", "to NumPy, cpu", "`numpy.from_dlpack(x)` of a host array", 0.35),
    (
        "converters",
        "CudaNdarray -> torch, host",
        "a host array to PyTorch; the target: `torch.from_numpy`",
        "torch.from_numpy(numpy)",
    ),
    ("converters", "refusal: negative strides -> torch", "a conversion that raises", 20.0),
    ("exchange", "from torch, side stream, cuda", "`from_torch(t)` while PyTorch works on a side stream", 0.6),
    ("exchange", "to torch, side stream, cuda", "`to_torch(x)` there, for an array that was last used there", 0.8),
    ("launch", LAUNCHED, "`exp(x, out=y)` of 2^10: host time above the raw launch", 0.5),
    (
        "launch",
        "first kernel of a process, compiled",
        "a process's first kernel, compiled; NVRTC is loaded for it",
        100_000.0,
    ),
    (
        "launch",
        "first kernel of a process, from the disk cache",
        "a process's first kernel, from the disk cache",
        5_000.0,
    ),
    (
        "documents",
        "logistic regression, a step",
        "logistic regression, a training step: the stretch target",
        8.0,
    ),
    (
        "documents", "logistic regression, a step",
        "the same step in plain lines, as a function of `gi.fuse`, captured", 8.0, FUSED,
    ),
    (
        "documents", "logistic regression, a step",
        "a training step in plain lines, captured without `fuse`", 10.0, PLAIN,
    ),
    (
        "documents", "logistic regression, compiled by PyTensor",
        "the same step, compiled by PyTensor", 8.0,
    ),
    (
        "documents", "exp, compiled by PyTensor",
        "`exp` of 230,400 floats, compiled by PyTensor, with a fresh result on the GPU", 2.3,
    ),
    (
        "documents", "y = m.x + b, 1000 x 1000, compiled by PyTensor",
        "y = m.x + b, 1000 x 1000, compiled by PyTensor, all in shared variables", 54.0,
    ),
    ("documents", "exp, compiled by PyTensor", "`exp` compiled by PyTensor, without a captured graph", 3.8, NO_GRAPHS),
    (
        "documents", "y = m.x + b, 1000 x 1000, with transfers",
        "y = m.x + b, compiled by PyTensor, with transfers; the target: PyTorch with the same transfers", "torch",
    ),
    (
        "documents", "logistic regression, until the end of the first call",
        "compiling the training step by PyTensor, to the end of its first call", 1_000_000.0,
    ),
)  # fmt: skip

TAKEN = (
    "The other libraries import any {what} unchecked. gpuinterop checks {checks}. "
    "It stores the stream, so that later work waits."
)
OF_TORCH = TAKEN.format(
    what="tensor", checks="the class, gradients, pending conjugation and the device"
)
OF_CUPY = TAKEN.format(what="array", checks="the class, the device and the pool")
BY_TABLE = "gpuinterop checks the tensor, and makes an array with an owner and a stream."
OF_NUMPY = (
    "gpuinterop checks every field of the capsule, and makes an array that any library can share."
)
WITH_PLACES = "The tree reduces values together with their positions."
WAYS = ("upload", "download", "download, new memory")
SMALL_COPY = "All libraries leave a small copy to the driver. The rest is the call."
WOKEN = "Waking threads takes about as long as they save."
FAR = "The host's memory limits the copy, not the bus: no cache holds the array."
READ = "The driver takes 6.5 us for the copy and the wait. The rest is the call from Python."
OUTSIDE = (
    "gpuinterop waits for the check of the indices, because an index out of range raises. The other "
    "libraries do not wait."
)
ON_HOST = {
    "x + y": "The fixed cost of a call, or run-to-run variation.",
    "x + y, replayed": "Run-to-run variation: both libraries run the same loop.",
    "x[::-1] + int16": "The loops convert int16 to float32 before they add, as NumPy's do.",
    "x.sum()": "gpuinterop accumulates in float64, the other libraries in float32.",
    "A.sum(axis=0)": "gpuinterop accumulates in float64, the other libraries in float32.",
    "A.max(axis=1)": "PyTorch takes several rows at a time, NumPy's loop one.",
    "tanh(x * y + x), fused": "The loops are NumPy's. Both evaluate `tanh` in the same time.",
    "A.mean(axis=0)": "gpuinterop accumulates in float64, NumPy in float32.",
    "softplus(x)": "NumPy's row is `log1p(exp(x))`, which overflows for large `x`.",
    "exp(A[:, :32])": "The loop runs once for each row of 32 elements, and a run of it costs 2 to 5 ns more than "
    "NumPy's.",
    "add(x, y, out=)": "Run-to-run variation: both libraries run the same loop.",
    "x.argmax()": "The result is an array, which other libraries can share. NumPy returns a number.",
    **dict.fromkeys(
        ("zeros", "empty", "A.T.copy()"), "The fixed cost of a call, or run-to-run variation."
    ),
}
WHY: dict[tuple[str, str], str] = {
    ("documents", "exp, captured graph"):
        "A replay is one call of the driver, whose host time varies from run to run: PyTorch's graph took "
        "4.50 us in this run and 2.58 in the run before, in which gpuinterop's took 2.11.",
    **{("cpu", f"{row}, {size}"): why for size in ("64", "2^12", "2^16", "2^18", "2^22")
       for row, why in ON_HOST.items()},
    ("cpu", "exp(A[:, :32]), 64"): "The row includes the view, which takes longer to make than NumPy's: it is "
    "an object of a Python subclass with an owner.",
    ("sorting", "argsort rows int64 4096 x 4096"): "It is the longest line of 8-byte elements that a block sorts in "
    "shared memory, and the places are moved with the elements.",
    ("sorting", "unique_all int64 2^24"): "Besides the sort there are the first indices, which PyTorch's row lacks, "
    "and the sweeps that write the inverse [in order of memory](../adr/0028-sorts-and-scans.md).",
    **{("algebra", f"{name} 1024 of 32x32 float32"): "CuPy's method is "
       "[less exact](#sorting-random-numbers-linear-algebra-and-fourier-transforms)." for name in ("eigh", "eigvalsh")},
    ("launch", "first kernel of a process, compiled"): "The median of three processes. The fastest took 78 ms, and an "
    "earlier median was 82: loading NVRTC's 100 MB depends on the machine's files.",
    ("launch", "first kernel of a process, from the disk cache"): "The median of three processes. The fastest took "
    "4.7 ms, and an earlier median was 3.4. Reading the cache takes 0.5 ms of it, and the driver loads the kernel.",
    ("cpu", "x + y, 64"): "The result has a counted buffer, which other libraries can share. NumPy takes small "
    "arrays from a cache.",
    ("cpu", "x.sum(), 64"): "The result is such an object, a 0-d array; NumPy returns a number.",
    ("cpu", "tanh(x * y + x), fused, 2^18"): "NumPy's loop of `tanh` takes half of this time, and has "
    "become faster since the target was set.",
    ("cpu", "A.sum(axis=0), 64"): "A fixed cost: from 2^12 elements on the two libraries are equal.",
    **{("transfers", f"{way}, 2^{k}"): SMALL_COPY if k < 20 else WOKEN if k < 24 else FAR
       for way in WAYS for k in range(12, 31)},
    **{("reads", row): READ
       for row in ("x.get() of 4096 floats", "x.get(out=y) of 4096 floats", "x.item(3)",
                   "float(x.sum())", "bool((x > 0).all())")},
    ("indexing", "take"): OUTSIDE,
    ("indexing", "take, int32"): OUTSIDE,
    ("indexing", "columns X[:, idx]"): OUTSIDE,
    ("indexing", "x[idx] = v"): "The indices are checked before the first write, in a separate pass.",
    ("converters", "torch -> CudaNdarray"): OF_TORCH,
    ("converters", "torch -> CudaNdarray, host"): OF_TORCH,
    ("converters", "cupy -> CudaNdarray"): OF_CUPY,
    ("converters", "numpy -> CudaNdarray, host"): OF_NUMPY,
    ("converters", "jax -> CudaNdarray, host"): "JAX's capsule takes most of the time in both. "
    "gpuinterop checks every field of it and makes an array with an owner.",
    ("converters", "CudaNdarray -> jax, host"): "Most of it is JAX's own import. The rest checks the layout and "
    "records the loan, for which later writes wait.",
    ("converters", "CudaNdarray -> cupy"): "Most of it is CuPy's own constructors of a memory object and an "
    "array; the rest is the check of layout and flags.",
    ("converters", "CudaNdarray -> PyCUDA"): "Besides `GPUArray`'s constructor there is the check of layout and "
    "context, and an event for PyCUDA's stream.",
    ("exchange", "export, cpu"): "gpuinterop checks that a running capture has computed the elements.",
    ("exchange", "to NumPy, cpu"): "The difference is `x.__dlpack__()`. NumPy's import is the rest for both.",
    ("exchange", "from NumPy, cpu"): OF_NUMPY,
    ("exchange", "from torch, cpu"): BY_TABLE,
    ("exchange", "from torch, cuda"): BY_TABLE,
    ("exchange", "from torch, side stream, cuda"): BY_TABLE,
    ("exchange", "from CuPy, cuda"): OF_CUPY,
    ("launch", LAUNCHED): "[The call from Python](#the-host-time-of-a-call) takes this time. No step but the "
    "interpreter's takes more than 0.12 us.",
    ("documents", "logistic regression, a step"): "A step is a graph of two kernels, of which the second waits for "
    "the first; host time determines when the next step starts.",
    ("documents", PLAIN): "A capture keeps all 27 kernels, and each takes 1.3 us with its start. `fuse` makes two.",
    ("documents", NO_GRAPHS): "`exp(x)` itself took 4.46 us in this run and a bare launch 3.50. So only a "
    "captured graph can reach the target. The rest is the compiled function's own Python code.",
    ("exchange", "view, cuda"): "Host time without another library to scale it by, so it depends on the machine: "
    "0.24 us in the record before.",
    ("converters", "refusal: negative strides -> torch"): "Host time without another library to scale it by: "
    "a plan, an exception and its message.",
    ("exchange", "view, cpu"):
    "A view is an object of a Python subclass with an owner, which may be on a GPU. NumPy makes a view of its base "
    "class.",
    ("bandwidth", "exp(x[::2])"): "Half of every cache line that is read is unused: the memory moves 1.5 "
    "times the bytes that are counted.",
    ("grid", "copy of X.T, float32, 16385 x 16383"):
    "The rows of both matrices begin at different offsets in a sector, so a tile of 64 x 64 reads 72 lines.",
    ("reductions", "sum axis 0"):
    "A block reads a strip of columns, so each read is 512 bytes wide and the next one is a row away. Sums along "
    "rows read without gaps. Of 23 other divisions none was faster.",
    ("reductions", "sum all"): "The last block adds the parts of all others, always in the same order, so that the sum "
    "always has the same bits.",
    ("reductions", "argmax all"): WITH_PLACES,
    ("reductions", "argmax axis 1"): WITH_PLACES,
    ("reductions", "sum all of 2^24"): "Reading takes only 15 microseconds, so the time to add the parts is visible.",
    ("documents", "exp, out given"): "The kernel is shorter than its launch, so this is host time. It is the raw "
    "launch and [the call from Python](#the-host-time-of-a-call).",
    ("documents", "exp, fresh result"): "As above, and the allocation of the result from the driver's pool.",
    ("gemm", "(8192x8192).T @ vector"): "Columns are added in parts, as accurately as a sum; "
    "cuBLAS's gemv makes one pass with plain float32 sums.",
}  # fmt: skip

# The time over that of the faster other library, for the rows that an expression finds. The first expression counts.
# Targets for the time of a call on "cpu" over NumPy's: with 64, 2^12, 2^18 and 2^22 elements.
ON_HOST_RATIOS = {
    "x + y": (1.2, 1.2, 1.2, 1.2),
    "add(x, y, out=)": (1.5, 1.1, 1.0, 1.0),
    "A.mean(axis=0)": (1.1, 1.1, 1.1, 1.1),
    "A.max(axis=0)": (1.1, 1.1, 1.1, 1.1),
    "x.argmax()": (1.3, 1.3, 1.3, 1.3),
    "A.T.copy()": (1.3, 1.3, 1.3, 1.3),
    "x.astype('float64')": (1.1, 1.0, 1.0, 1.0),
}
RATIOS = {
    "sorting": {
        r"(arg)?sort (rows|columns)": 0.70,
        r"argsort \w+ 2\^2": 0.85,
        r"sort \w+ 2\^2": 1.05,
        r"cumsum \w+64 2\^2": 1.1,
        r"cumsum \w+ 2\^2": 1.0,
        "cumsum axis 0": 0.15,
        "cumsum axis 1": 0.55,
        "searchsorted": 1.12,
        "unique_values": 1.1,
        "unique_all": 0.6,
    },
    "random": {r"uniform, \w+, 2\^26": 0.75, r"normal, \w+, 2\^26": 0.95},
    "algebra": {
        r"\w+ 1024 of": 1.05,
        r"cholesky \d{4}": 1.0,
        r"svd \d{4}": 0.5,
        r"inv \d{4}": 1.15,
        r"(solve|qr|eigh|eigvalsh|det) \d{4}": 1.08,
        r"\w+ 64x64": 1.25,
        r"fft 1024 |rfft 1024 ": 1.0,
        "fft|ifft|rfft|irfft|fft2": 1.02,
    },
}
