"""Fakes of GPU libraries on the fake driver's memory."""

import gc
import importlib
import types

import pytest
from doubles import driver, fake_cudamat, fake_pycuda
from doubles.fake_numba import DeviceNDArray, MemoryPointer

import gpuinterop as gi
from gpuinterop import converters


@pytest.fixture
def primary():
    """The primary context is current, as pycuda.autoprimaryctx makes it."""
    with driver.Current():
        yield


@pytest.fixture
def pycuda(monkeypatch, primary):
    modules = fake_pycuda.pycuda()
    fake_pycuda.installed(monkeypatch, modules)
    return modules["pycuda"]


@pytest.fixture
def cudamat(monkeypatch, primary):
    module = fake_cudamat.cudamat()
    fake_pycuda.installed(monkeypatch, module)
    return module


@pytest.fixture
def gpu():
    """Upload a NumPy array to the (fake) GPU, with the same order of strides."""

    def upload(host):
        return gi.array(host, device="cuda")

    return upload


@pytest.fixture
def gnumpy(monkeypatch, cudamat):
    module = fake_cudamat.gnumpy(cudamat)
    fake_pycuda.installed(monkeypatch, module)
    yield module
    vars(module).pop("_gpuinterop_alias_marker", None)
    gc.collect()
    module.free_reuse_cache()  # while the context that the memory belongs to is current


@pytest.fixture
def cupy(monkeypatch):
    """The real CuPy, which makes arrays over memory without a driver; only its stream needs one."""
    cupy = pytest.importorskip("cupy")
    stream = types.SimpleNamespace(ptr=0)
    monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda device=-1: stream)
    # By its Python function, not by the C function that asks the runtime library for devices. The
    # core looks for that one once, when it sees the first array.
    backend = importlib.import_module("cupy_backends.cuda.stream")
    monkeypatch.setattr(backend, "__pyx_capi__", {})
    return cupy


@pytest.fixture
def numba(monkeypatch):
    package, cuda = types.ModuleType("numba"), types.ModuleType("numba.cuda")
    context = types.SimpleNamespace(device=types.SimpleNamespace(id=0))
    cuda.current_context = lambda: context
    cuda.gpus = [types.SimpleNamespace(get_primary_context=lambda: context)] * 2
    cuda.cudadrv = types.SimpleNamespace(
        devicearray=types.SimpleNamespace(DeviceNDArray=DeviceNDArray),
        driver=types.SimpleNamespace(
            MemoryPointer=MemoryPointer, binding=types.SimpleNamespace(CUdeviceptr=int)
        ),
    )
    package.cuda = cuda
    fake_pycuda.installed(monkeypatch, package, cuda)
    yield cuda
    converters.numba._builder.cache_clear()
