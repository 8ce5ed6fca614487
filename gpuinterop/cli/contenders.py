"""The libraries that a benchmark compares, and how long their calls take. ``benchmarks/`` use it too."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import gpuinterop as gi

# By default JAX reserves most of the device's memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

GPUINTEROP = "gpuinterop"


def first_line(error: BaseException) -> str:
    """Return the class and the first line of an error."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:120] if text else ''}"


def libraries_on(device: str, names: Iterable[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Import the libraries that have arrays on the device; return also why the others do not take part."""
    found, absent = {}, {}
    for name in names:
        try:
            module = importlib.import_module(name)
            if not _works(name, module, device != "cpu"):
                absent[name] = f"no arrays on {device}"
            else:
                found[name] = module
        except Exception as error:  # whatever a broken installation raises
            absent[name] = first_line(error)
    return found, absent


def _works(name: str, module: Any, on_gpu: bool) -> bool:
    if name == "numpy":
        return not on_gpu
    if name == "cupy":
        return on_gpu and bool(module.is_available())
    if name == "torch":
        return not on_gpu or bool(module.cuda.is_available())
    return not on_gpu or module.default_backend() == "gpu"  # JAX


def waiting(libraries: dict[str, Any], device: str) -> dict[str, Callable[[], Any]]:
    """Return for each library the function that waits for its queue. JAX has none: see `JaxCall`."""
    found: dict[str, Callable[[], Any]] = {GPUINTEROP: lambda: gi.synchronize(device)}
    if "torch" in libraries:
        found["torch"] = libraries["torch"].cuda.synchronize if device != "cpu" else lambda: None
    if "cupy" in libraries:
        found["cupy"] = libraries["cupy"].cuda.get_current_stream().synchronize
    return found


class JaxCall:
    """A call of JAX, which queues on streams of its own, so that `wait` waits for the last result."""

    def __init__(self, jax: Any, function: Callable[..., Any], *arguments: Any) -> None:
        self.jax, self.function, self.arguments, self.last = jax, function, arguments, None

    def __call__(self) -> Any:
        self.last = self.function(*self.arguments)
        return self.last

    def wait(self) -> None:
        self.jax.block_until_ready(self.last)


def seconds_of(body: Callable[[], Any], wait: Callable[[], Any], count: int) -> float:
    """Return the seconds of a call, from `count` calls with an empty queue before and a wait after them."""
    wait()
    begin = time.perf_counter()
    for _ in range(count):
        body()
    wait()
    return (time.perf_counter() - begin) / count
