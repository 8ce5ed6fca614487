"""`import gpuinterop` loads no driver and no foreign library, starts no thread, opens no socket."""

import importlib.util
import json

import pytest
from doubles import driver

FOREIGN = (
    "torch", "jax", "jaxlib", "cupy", "numba", "pycuda", "pytensor", "theano", "tvm_ffi", "tensorflow",
    "cuda", "scipy", "matplotlib", "rich", "ml_dtypes", "array_api_strict", "warp", "cudamat", "gnumpy",
    "numba_cuda", "triton", "pyopencl", "mpi4py", "dask", "distributed", "ray", "nccl",
)  # fmt: skip

PROBE = """
import json, os, sys
import numpy
before = set(sys.modules)
threads = len(os.listdir("/proc/self/task"))
{code}
with open("/proc/self/maps") as maps:
    mapped = sorted({{line.split("/", 1)[1].strip() for line in maps if "/" in line}})
print(json.dumps({{
    "modules": sorted(set(sys.modules) - before),
    "threads": len(os.listdir("/proc/self/task")) - threads,
    "mapped": mapped,
}}))
"""
IMPORT = "import gpuinterop"
ON_THE_HOST = """
import gpuinterop
x = gpuinterop.zeros((2, 3), device="cpu")
x[:, ::-1] = gpuinterop.asarray(numpy.ones((2, 3), "float32"), device="cpu", copy=False)
assert numpy.from_dlpack(x).sum() == 6
DType = type("DType", (), {"__repr__": lambda self: "torch.float64"})
assert gpuinterop.zeros(2, DType(), device="cpu").dtype == "float64"
try:
    gpuinterop.from_any(object())
except TypeError:
    pass
"""


def probe(code: str = IMPORT) -> dict:
    return json.loads(driver.run(PROBE.format(code=code), timeout=120))


@pytest.mark.parametrize("code", [IMPORT, ON_THE_HOST], ids=["import", "arrays on the host"])
def test_is_light(code):
    seen = probe(code)
    foreign = [name for name in seen["modules"] if name.split(".")[0] in FOREIGN]
    assert not foreign
    driver = [
        p for p in seen["mapped"] if any(s in p for s in ("libcuda", "libnvrtc", "libcublas"))
    ]
    assert not driver
    assert seen["threads"] == 0


def test_a_broken_driver_does_not_matter(tmp_path, monkeypatch):
    broken = tmp_path / "libcuda.so.1"
    broken.write_bytes(b"not a library")
    monkeypatch.setenv("GPUINTEROP_LIBCUDA", str(broken))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert probe()["threads"] == 0


def test_the_first_operation_loads_no_code_of_rare_ones():
    code = 'import gpuinterop\ngpuinterop.arctan(gpuinterop.ones(3, device="cpu"))'
    rare = (
        "captures",
        "converters",
        "exchange.engine",
        "fusion",
        "index",
        "numpy_api.functions",
        "product",
    )
    names = {f"gpuinterop.{name}" for name in rare}
    assert all(importlib.util.find_spec(name) for name in names)
    assert not names & set(probe(code)["modules"])


def test_a_first_fused_call_imports_no_converters_and_no_module_of_other_functions():
    code = (
        'import gpuinterop\nx = gpuinterop.ones(3, device="cpu")\n'
        "gpuinterop.fuse(lambda a: gpuinterop.exp(a) * 2 + x)(x)"
    )
    modules = set(probe(code)["modules"])
    assert not modules & {
        "gpuinterop.converters",
        "gpuinterop.numpy_api.functions",
        "importlib.metadata",
    }


def test_a_first_fused_call_may_use_numpys_functions():
    for function in ("numpy.transpose(a) * 2", "numpy.add.reduce(a)"):
        code = (
            'import numpy, gpuinterop\nx = gpuinterop.ones((3, 3), device="cpu")\n'
            f"assert gpuinterop.fuse(lambda a: {function})(x).shape in ((3, 3), (3,))"
        )
        assert probe(code)["modules"]
