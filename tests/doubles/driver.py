"""The CUDA driver, real or fake, called through ctypes independently of gpuinterop; and programs that run on it."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import sys
import textwrap
from ctypes import byref, c_size_t, c_uint, c_void_p
from pathlib import Path
from typing import ClassVar

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
LEGACY, PER_THREAD = 1, 2


@functools.cache
def libcuda() -> ctypes.CDLL:
    return ctypes.CDLL(os.environ.get("GPUINTEROP_LIBCUDA") or "libcuda.so.1")


def call(name: str, *args) -> None:
    status = getattr(libcuda(), name)(*args)
    assert status == 0, f"{name} returned {status}"


@functools.cache
def primary(device: int = 0) -> int:
    call("cuInit", 0)
    context = c_void_p()
    call("cuDevicePrimaryCtxRetain", byref(context), device)
    return context.value


def current_context() -> int | None:
    context = c_void_p()
    call("cuCtxGetCurrent", byref(context))
    return context.value


def push(context: int | None) -> None:
    call("cuCtxPushCurrent_v2", c_void_p(context))


def pop() -> None:
    call("cuCtxPopCurrent_v2", byref(c_void_p()))


def new_context(device: int = 0) -> int:
    """A context beside the primary one; it is not current."""
    call("cuInit", 0)
    context = c_void_p()
    call("cuCtxCreate_v2", byref(context), 0, device)
    pop()
    return context.value


class Current:
    """Make a context, by default a device's primary one, current for a block."""

    def __init__(self, context: int | None = None, device: int = 0) -> None:
        self.context = primary(device) if context is None else context

    def __enter__(self) -> None:
        push(self.context)

    def __exit__(self, *error) -> None:
        pop()


def allocate(nbytes: int, context: int | None = None) -> int:
    """Device memory of a context, by default the primary one."""
    address = c_void_p()
    with Current(context):
        call("cuMemAlloc_v2", byref(address), c_size_t(nbytes))
    return address.value


def allocate_managed(nbytes: int, device: int = 0) -> int:
    address = c_void_p()
    with Current(device=device):
        call("cuMemAllocManaged", byref(address), c_size_t(nbytes), 1)
    return address.value


def allocate_pinned(nbytes: int) -> int:
    address = c_void_p()
    with Current():
        call("cuMemHostAlloc", byref(address), c_size_t(nbytes), 0)
    return address.value


class _PoolProperties(ctypes.Structure):
    """CUmemPoolProps."""

    _fields_ = (
        ("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", ctypes.c_int * 2),
        ("windows", c_void_p), ("most", c_size_t), ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 54),
    )  # fmt: skip


def allocate_from_exportable_pool(nbytes: int) -> int:
    """Device memory of a new pool that other processes can open. The pool stays."""
    pool, address = c_void_p(), c_void_p()
    wanted = _PoolProperties(1, 1, (ctypes.c_int * 2)(1, 0))
    with Current():
        call("cuMemPoolCreate", byref(pool), byref(wanted))
        call("cuMemAllocFromPoolAsync", byref(address), c_size_t(nbytes), pool, c_void_p(LEGACY))
        call("cuStreamSynchronize", c_void_p(LEGACY))
    return address.value


def free(address: int, context: int | None = None) -> None:
    with Current(context):
        call("cuMemFree_v2", c_void_p(address))


def free_pinned(address: int) -> None:
    with Current():
        call("cuMemFreeHost", c_void_p(address))


@functools.cache
def _usleep() -> int:
    return ctypes.cast(ctypes.CDLL(None).usleep, c_void_p).value


def slow(stream: int, microseconds: int = 20_000, device: int = 0) -> None:
    """Queue a pause. usleep itself is the host function, so no GIL and no kernel is involved."""
    with Current(device=device):
        call("cuLaunchHostFunc", c_void_p(stream), c_void_p(_usleep()), c_void_p(microseconds))


class Gate:
    """Queue a wait that ends when `open` is called, from any thread, with no GIL involved."""

    _all: ClassVar[list[Gate]] = []  # the driver reads the semaphore later

    def __init__(self, stream: int, device: int = 0) -> None:
        self.libc = ctypes.CDLL(None)
        self.semaphore = ctypes.create_string_buffer(64)
        self.libc.sem_init(self.semaphore, 0, 0)
        self._all.append(self)
        wait = ctypes.cast(self.libc.sem_wait, c_void_p)
        with Current(device=device):
            call("cuLaunchHostFunc", c_void_p(stream), wait, self.semaphore)

    def open(self) -> None:
        self.libc.sem_post(self.semaphore)


def new_stream(blocking: bool = False, device: int = 0, context: int | None = None) -> int:
    """A stream of another library."""
    stream = c_void_p()
    with Current(context, device):
        call("cuStreamCreateWithPriority", byref(stream), c_uint(0 if blocking else 1), 0)
    return stream.value


def destroy_stream(stream: int) -> None:
    call("cuStreamDestroy_v2", c_void_p(stream))


def is_done(stream: int, device: int = 0) -> bool:
    with Current(device=device):
        status = libcuda().cuStreamQuery(c_void_p(stream))
    assert status in (0, 600)
    return status == 0


def read(address: int, count: int, stream: int, device: int = 0, dtype=np.float32) -> np.ndarray:
    """Elements of device memory, read on `stream` as another library would."""
    out = np.empty(count, dtype)
    if not count:
        return out
    with Current(device=device):
        call("cuMemcpyDtoHAsync_v2", c_void_p(out.ctypes.data), c_void_p(address),
             c_size_t(out.nbytes), c_void_p(stream))  # fmt: skip
        call("cuStreamSynchronize", c_void_p(stream))
    return out


def copy(target: int, source: int, nbytes: int, stream: int) -> None:
    """Queue a copy of device memory, as another library would."""
    with Current():
        call(
            "cuMemcpyDtoDAsync_v2",
            c_void_p(target),
            c_void_p(source),
            c_size_t(nbytes),
            c_void_p(stream),
        )


class Capture:
    """A capture of a stream; `end` gives the number of nodes and keeps the graph."""

    GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
    open: ClassVar[list[Capture]] = []

    def __init__(self, stream: int, mode: int = GLOBAL) -> None:
        self.stream, self.graph, self.executable = stream, c_void_p(), c_void_p()
        with Current():
            call("cuStreamBeginCapture_v2", c_void_p(stream), mode)
        self.open.append(self)

    @classmethod
    def end_all(cls) -> None:
        """After a test that failed inside a capture, so that the next ones can run.

        Ignores the driver's result, because the capture may be broken, or its stream destroyed.
        """
        while cls.open:
            capture = cls.open.pop()
            with Current():
                libcuda().cuStreamEndCapture(c_void_p(capture.stream), byref(capture.graph))
            if capture.graph:
                capture.destroy()

    def end(self) -> int:
        self.open.remove(self)
        with Current():
            call("cuStreamEndCapture", c_void_p(self.stream), byref(self.graph))
        count = c_size_t()
        call("cuGraphGetNodes", self.graph, None, byref(count))
        return count.value

    def finish(self) -> int:
        """End the capture and destroy its graph; return the number of nodes."""
        nodes = self.end()
        self.destroy()
        return nodes

    def launch(self, stream: int) -> None:
        with Current():
            if not self.executable:
                call(
                    "cuGraphInstantiateWithFlags",
                    byref(self.executable),
                    self.graph,
                    ctypes.c_ulonglong(0),
                )
            call("cuGraphLaunch", self.executable, c_void_p(stream))

    def destroy(self) -> None:
        if self.executable:
            call("cuGraphExecDestroy", self.executable)
        call("cuGraphDestroy", self.graph)


def python(
    *words: str | Path,
    cwd: Path = ROOT,
    timeout: float = 300,
    stdin: str | None = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """The finished process of an interpreter with these arguments, which can import `doubles`."""
    path = [environment.pop("PYTHONPATH", ""), str(ROOT), str(ROOT / "tests")]
    path.append(os.environ.get("PYTHONPATH", ""))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    return subprocess.run(
        [sys.executable, *words], env={**os.environ, **environment}, cwd=cwd,
        capture_output=True, text=True, timeout=timeout, input=stdin,
    )  # fmt: skip


def run(
    code: str, libcuda: str | Path | None = None, *, timeout: float = 60, **environment: str
) -> str:
    """Run code in a fresh interpreter, by default on the driver of this process; return its output.

    The program must end with status 0 and print nothing to stderr.
    """
    if libcuda is not None:
        environment["GPUINTEROP_LIBCUDA"] = str(libcuda)
    # From 3.12 on Python warns about a fork while threads run; the fake driver has some.
    quiet = ["-W", "ignore:This process:DeprecationWarning"]
    result = python(*quiet, "-c", textwrap.dedent(code), timeout=timeout, **environment)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    return result.stdout
