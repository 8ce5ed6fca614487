"""Captures of another library, on another thread, that nobody here has heard of: they stay whole."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import gpuinterop

pytestmark = pytest.mark.gpu


def allocate_much(_):
    return [gpuinterop.empty(1 << 20, "float32", device="cuda:0") for _ in range(4)]


def first_kernel(x):
    gpuinterop.ElementwiseKernel("float32 x", "float32 y", "y = x + 0.125f", "unseen")(x)


def release_exported(x):
    """A consumer that says nothing of its stream has looked at the memory."""
    exported = x + 1
    _ = exported.__cuda_array_interface__
    del exported
    allocate_much(x)


ACTIONS = {
    "allocate": allocate_much,
    "launch": lambda x: gpuinterop.exp(x),
    "first kernel": first_kernel,
    "upload and download": lambda x: gpuinterop.CudaNdarray(
        np.ones(9, "f4"), device="cuda:0"
    ).get(),
    "capture and replay": lambda x: gpuinterop.capture(lambda a: a + 1, x)(),
    "free": lambda x: [x + i for i in range(9)],
    "empty cache": lambda x: gpuinterop.empty_cache(),
    "release exported memory": release_exported,
}


@pytest.mark.parametrize("name", ACTIONS)
def test_a_capture_of_torch_survives(name: str) -> None:
    torch = pytest.importorskip("torch")
    x = gpuinterop.CudaNdarray(np.ones(1000, np.float32), device="cuda:0")
    gpuinterop.exp(x)
    value = torch.ones(1000, device="cuda")
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    begun, done, problems = threading.Event(), threading.Event(), []

    def record() -> None:
        try:
            with torch.cuda.stream(side):
                graph.capture_begin(capture_error_mode="thread_local")
                value.add_(1)
                begun.set()
                done.wait(60)
                value.add_(1)
                graph.capture_end()
        except Exception as error:  # whatever torch raises is what is looked at
            problems.append(error)
        finally:
            begun.set()

    thread = threading.Thread(target=record)
    thread.start()
    begun.wait(60)
    try:
        ACTIONS[name](x)
    finally:
        done.set()
        thread.join()
    assert not problems, problems
    graph.replay()
    torch.cuda.synchronize()
    assert float(value[0]) == 3
