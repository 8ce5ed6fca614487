"""An interrupt inside an attribute of another library's object stays an interrupt, at every entrance of the package."""

import itertools

import numpy as np
import pytest

import gpuinterop as gi

HOST = np.arange(6, dtype=np.float32).reshape(2, 3)
# NumPy discards exceptions of these, and some entrances call it.
OF_NUMPY = {"type.__array_ufunc__", "type.__array_function__", "type.__mro__"}


class Trap:
    """Interrupts the first reading of the k-th attribute that a call reads."""

    def __init__(self):
        self.names, self.k, self.hit = {}, None, ""

    def read(self, name):
        first = name not in self.names and name not in OF_NUMPY
        self.names[name] = None
        if first and self.k is not None:
            if self.k == 0:
                self.k, self.hit = None, name
                raise KeyboardInterrupt(name)
            self.k -= 1


trap = Trap()


class Class(type):
    def __getattribute__(cls, name):
        trap.read(f"type.{name}")
        return super().__getattribute__(name)


class Base(metaclass=Class):
    def __getattribute__(self, name):
        trap.read(name)
        return object.__getattribute__(self, name)


def calls(name, function):
    def method(self, *args, **options):
        trap.read(f"{name}()")
        return function(*args, **options)

    return {name: method}


PARTS = {
    "shape": (2, 3),
    "strides": (12, 4),
    "dtype": HOST.dtype,
    "ndim": 2,
    "size": 6,
    "itemsize": 4,
    "device": "cpu",
}
DLPACK = calls("__dlpack__", HOST.__dlpack__) | calls("__dlpack_device__", lambda: (1, 0))
DICTIONARY = {**HOST.__array_interface__, "version": 3}
KINDS = {
    "DLPack": PARTS | DLPACK,
    "array API": PARTS | DLPACK | calls("__array_namespace__", lambda **_: np),
    "array interface": PARTS | {"__array_interface__": DICTIONARY},
    "CUDA interface": PARTS | {"__cuda_array_interface__": DICTIONARY},
    "__array__": calls("__array__", lambda *_, **__: HOST),
    "int": calls("__index__", lambda: 1) | calls("__len__", lambda: 0),
    "float": calls("__float__", lambda: 1.0),
    "sequence": calls("__len__", lambda: 2) | calls("__getitem__", [1, 2].__getitem__),
    "dtype": {"dtype": HOST.dtype, "name": "float32", "kind": "f", "str": "<f4"},
    "stream": {"type": "cpu", "index": 0, "ptr": 0} | calls("__cuda_stream__", lambda: (0, 0)),
    **{
        name: PARTS | {"__module__": module, "gpudata": 64, "ptr": 64} | (DLPACK if module != "pycuda.gpuarray" else {})
        for module, name in (
            ("numba.cuda", "DeviceNDArray"), ("pycuda.gpuarray", "GPUArray"), ("warp", "array"),
            ("tensorflow", "EagerTensor"), ("cuda.core", "Buffer"), ("gnumpy", "garray"),
        )
    },
}  # fmt: skip
# Statements with an array x and the object o.
ENTRANCES = """
gi.asarray(o); gi.array(o, "float64"); gi.CudaNdarray(o); gi.from_any(o, copyif=True); gi.from_dlpack(o)
gi.explain(o, "torch"); gi.to(o, "numpy"); gi.to_cudandarray(o); gi.shares_memory(x, o); gi.zeros_like(o)
x + o; o + x; x @ o; x == o; x[o]; x[o:]; x[o] = 1; x[...] = o; x.fill(o); x.item(o); x.get(o); x.view(o)
gi.add(o, x); gi.add(x, x, out=o); gi.add(x, x, dtype=o); gi.clip(x, o, 2); gi.where(o, x, x); FUSED(x, o)
gi.concatenate([x, o]); gi.split(x, o); gi.dot(x, o); gi.gemm(x, x.T, alpha=o); gi.addmm(o, x, x.T)
gi.zeros(o); gi.zeros(3, o); gi.zeros(3, device=o); gi.device(o); gi.stream(o); x.to_device(o); x.copy(o)
x.reshape(o); x.transpose(o); x.astype(o); gi.sum(o); x.sum(o); x.sum(where=o); x.var(ddof=o); gi.allclose(x, o)
gi.take(x, o); gi.put(x, [0], o); gi.repeat(x, o); gi.add.at(x, o, 1); gi.nonzero(o); gi.copy_async(x, o)
x.__dlpack__(stream=o); x.__dlpack__(dl_device=o); gi.from_gpu_pointer(o, (2, 3))
gi.GpuArray.from_pointer(x.ptr, (2, 3), "f4", None, o, nbytes=24)
"""
CODES = [
    compile(line.strip(), line.strip(), "exec")
    for line in ENTRANCES.replace("\n", ";").split(";")
    if line.strip()
]
FUSED = gi.fuse(lambda x, y: x + y)


def outcome(code, **names):
    try:
        exec(code, {"gi": gi, "FUSED": FUSED}, names)
    except KeyboardInterrupt:
        return "KeyboardInterrupt"
    except Exception as error:
        return type(error).__name__
    return "no error"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_stays_one_at_every_entrance(device, kind):
    x, tried, lost = gi.asarray(HOST, device=device), 0, []
    name = kind if "__module__" in KINDS[kind] else "Foreign"
    with gi.device(device):
        for code in CODES:
            for k in itertools.count():
                trap.k = None
                obj = Class(name, (Base,), dict(KINDS[kind]))()
                trap.names.clear()
                trap.k, trap.hit = k, ""
                found = outcome(code, x=x, o=obj)
                hit, trap.k = trap.hit, None
                if not hit:
                    break
                tried += 1
                by_numpy = hit.startswith("type.") and found == "DTypeError"  # in numpy.dtype(o)
                if found != "KeyboardInterrupt" and not by_numpy:
                    lost.append(f"{code.co_filename}: {hit} -> {found}")
    assert lost == []
    assert tried > 200
