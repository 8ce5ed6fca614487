"""Captures of another library, on another thread, that are unknown to gpuinterop.

They stay valid, except one: see docs/devices.md. Each runs in its own process, because a broken
capture that is not ended keeps the whole process from synchronising.
"""

import textwrap

import pytest
from doubles import driver

pytestmark = pytest.mark.gpu

PROLOGUE = """
    import threading
    import numpy as np
    import torch
    import gpuinterop

    x = gpuinterop.CudaNdarray(np.ones(1000, np.float32), device="cuda:0")
    gpuinterop.exp(x)
    value = torch.ones(1000, device="cuda")
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    begun, done, problems = threading.Event(), threading.Event(), []

    def record():
        try:
            with torch.cuda.stream(side):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    value.add_(1)
                    begun.set()
                    done.wait(60)
                    value.add_(1)
                finally:
                    graph.capture_end()
        except Exception as error:  # any exception of torch is the result
            problems.append(error)
        finally:
            begun.set()

    def allocate_much():
        return [gpuinterop.empty(1 << 20, "float32", device="cuda:0") for _ in range(4)]

    def release_exported():
        exported = x + 1
        _ = exported.__cuda_array_interface__
        del exported
        allocate_much()

    thread = threading.Thread(target=record)
    thread.start()
    begun.wait(60)
    try:
        {action}
    finally:
        done.set()
        thread.join()
"""

SURVIVED = """
    assert not problems, problems
    graph.replay()
    torch.cuda.synchronize()
    assert float(value[0]) == 3
"""

# The capture failed where torch could see it, and all is well afterwards.
BROKEN = """
    assert problems, "the capture was not broken: then it belongs to those that survive"
    assert "captur" in str(problems[0])
    gpuinterop.synchronize("cuda:0")
    torch.cuda.synchronize()
    assert np.asarray(x + 1).tolist() == [2.0] * 1000
    release_exported()
    second = torch.cuda.CUDAGraph()
    with torch.cuda.graph(second):
        value.fill_(7)
    second.replay()
    torch.cuda.synchronize()
    assert float(value[0]) == 7
    again = gpuinterop.capture(lambda a: a + 1, x)
    assert np.asarray(again()).tolist() == [2.0] * 1000
"""

ACTIONS = {
    "allocate": "allocate_much()",
    "launch": "gpuinterop.exp(x)",
    "first kernel": "gpuinterop.ElementwiseKernel("
    "'float32 x', 'float32 y', 'y = x + 0.125f', 'unseen')(x)",
    "upload and download": "gpuinterop.CudaNdarray(np.ones(9, 'f4'), device='cuda:0').get()",
    "capture and replay": "gpuinterop.capture(lambda a: a + 1, x)()",
    "free": "[x + i for i in range(9)]",
    "empty cache": "gpuinterop.empty_cache()",
}


def run(action: str, ending: str, prologue: str = PROLOGUE) -> None:
    pytest.importorskip("torch")
    code = textwrap.dedent(prologue.replace("{action}", action)) + textwrap.dedent(ending)
    done = driver.python("-c", code)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("name", ACTIONS)
def test_a_capture_of_torch_survives(name: str) -> None:
    run(ACTIONS[name], SURVIVED)


def test_a_capture_that_the_release_of_exported_memory_breaks_says_so() -> None:
    """Its consumer named no stream, so gpuinterop waits for all streams, which breaks every unknown capture."""
    run("release_exported()", BROKEN)


def test_a_capture_on_a_stream_that_is_used_here_survives() -> None:
    made = "side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()"
    use = "known = gpuinterop.devices.as_stream(side)\n    with known:\n        gpuinterop.zeros(9, device='cuda:0')"
    assert made in PROLOGUE
    run("release_exported()", SURVIVED, PROLOGUE.replace(made, f"{made}\n    {use}"))
