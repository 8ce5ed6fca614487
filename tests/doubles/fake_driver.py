"""The fake CUDA driver: a shared library whose device memory is the host's, built from cuda/.

``pytest --driver=fake`` runs all tests of a process on it; ``driver.run(code, fake_driver.library())``
runs one program in a process of its own. The functions from `faults` on read and steer the fake driver.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
from ctypes import c_bool, c_char_p, c_int, c_int64, c_long, c_size_t, c_void_p
from pathlib import Path

import numpy as np

from doubles import driver

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "doubles"


def use() -> None:
    """Run this process and its children on the fake driver and cuBLAS, with kernels built by g++.

    The core opens the driver once, so call this before the first use of a device.
    """
    # A conftest.py that imported it would have read FAKE too early.
    assert getattr(sys.modules.get("doubles.on_fake"), "FAKE", True)
    blas = str(built("cublas", "fakecublas.cpp"))
    os.environ["GPUINTEROP_LIBCUDA"] = str(library())
    os.environ["GPUINTEROP_LIBCUBLAS"] = os.environ["GPUINTEROP_LIBCUBLASLT"] = blas
    os.environ["GPUINTEROP_LIBCUFFT"] = str(built("cufft", "fakecufft.cpp"))
    os.environ["GPUINTEROP_LIBCUSOLVER"] = str(built("cusolver", "fakecusolver.cpp"))
    os.environ["GPUINTEROP_FAKE_LAPACK"] = _lapack()
    from doubles import host_kernels

    host_kernels.install()


def _lapack() -> str:
    """Path of the library with LAPACK that NumPy's wheel has, "" for another NumPy."""
    folder = Path(np.__file__).parents[1] / "numpy.libs"
    return str(next(folder.glob("libscipy_openblas64_*"), ""))


def library() -> Path:
    """Path of the fake driver."""
    return built("cuda", "fakecuda.cpp")


@functools.cache
def built(folder: str, name: str) -> Path:
    """Path of a shared library of this folder, built on first use and after a change of its sources."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        import pytest  # programs that tests start need no more of it

        pytest.skip("no C++ compiler")
    sources = sorted(path for path in (HERE / folder).iterdir() if path.is_file())
    sources += sorted(HERE.glob("*.hpp"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    target = BUILD / f"lib{Path(name).stem}-{digest}.so"
    if target.exists():
        return target
    BUILD.mkdir(parents=True, exist_ok=True)
    flags = ["-std=c++20", "-shared", "-fPIC", "-O1", "-pthread"]
    for header in ("cuda.h", "dlpack/dlpack.h"):
        finder = [sys.executable, str(ROOT / "native" / "find_header.py"), header]
        include = subprocess.run(finder, check=True, capture_output=True, text=True).stdout.strip()
        flags += ["-isystem", include]
    # Under another name first, because two test processes may build at the same time.
    partial = target.with_suffix(f".{os.getpid()}")
    command = [compiler, *flags, str(HERE / folder / name), "-o", str(partial), "-ldl"]
    subprocess.run(command, check=True)
    partial.replace(target)
    return target


def faults() -> str:
    """What the fake driver saw that a real one would not survive, or "" if nothing."""
    function = driver.libcuda().fakecuda_faults
    function.restype = c_char_p
    return function().decode()


def calls(name: str) -> int:
    """How often the driver's function `name` was called."""
    return driver.libcuda().fakecuda_calls(name.encode())


def log() -> list[str]:
    """Names of the driver's functions that were called since `clear_log`."""
    function = driver.libcuda().fakecuda_log
    function.restype = c_char_p
    return function().decode().split()


def clear_log() -> None:
    driver.libcuda().fakecuda_clear_log()


def fail(name: str, code: int, skip: int = 0, count: int = 1) -> None:
    """Let `count` calls of the driver's function `name`, after `skip` more, return `code`."""
    driver.libcuda().fakecuda_fail(name.encode(), c_int(code), c_int(skip), c_int(count))


def give_handle_again(stream: int) -> None:
    """Give the next stream the handle of `stream`, which has been destroyed."""
    driver.libcuda().fakecuda_give_handle_again(c_void_p(stream))


def set_delay(microseconds: int) -> None:
    """Set how long each operation that is queued on a stream takes."""
    driver.libcuda().fakecuda_set_delay_us(c_long(microseconds))


def set_capacity(most: int) -> None:
    """Set how many operations a stream may hold; calls that queue more wait. 0: no limit."""
    driver.libcuda().fakecuda_set_capacity(c_size_t(most))


def keep_user_objects(keeps: bool) -> None:
    """Whether graphs are destroyed without the callbacks of their user objects, as if these came late."""
    driver.libcuda().fakecuda_keep_user_objects(c_bool(keeps))


def set_memory(nbytes: int, device: int = 0) -> None:
    driver.libcuda().fakecuda_set_memory(device, c_int64(nbytes))


def used(device: int = 0) -> int:
    """Bytes of device memory that are allocated."""
    function = driver.libcuda().fakecuda_used
    function.restype = c_int64
    return function(device)


if __name__ == "__main__":
    print(library())
