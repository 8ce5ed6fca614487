"""No exchange frees memory twice, or loses it, when Python or C++ cannot allocate memory on the way."""

import gc
import os
import sys

import numpy as np
import pytest
from doubles import fake_driver, internals
from peers import counting, run, with_table

import gpuinterop as gi

testcapi = pytest.importorskip("_testcapi")


def by_torch(x):
    import torch

    return gi.from_dlpack(internals.export_via(x, torch.Tensor))


ROUND_TRIPS = {
    "table": lambda x: gi.from_dlpack(internals.export_via(x, gi.GpuArray)),
    "capsule": lambda x: gi.from_dlpack(x.__dlpack__(max_version=(1, 3))),
    "numpy": lambda x: gi.from_dlpack(np.from_dlpack(x)),
    "torch": by_torch,
}


def fail_every_allocation(name) -> None:
    """Run a round trip with one allocation failing, the first, the second and so on."""
    body = ROUND_TRIPS[name]
    body(gi.from_dlpack(with_table(0)))  # what the first use makes
    x, freed = gi.from_dlpack(with_table(0)), counting()
    failed, step = 0, 0
    while step < failed + 3:  # until three calls in a row have not needed as many allocations
        testcapi.set_nomemory(step, step + 1)
        try:
            body(x)
        except BaseException:
            failed = step + 1
        finally:
            testcapi.remove_mem_hooks()
        step += 1
    assert failed
    assert freed() == 0
    assert np.from_dlpack(body(x)).tolist() == [[0, 1, 2], [3, 4, 5]]
    del x
    gc.collect()
    assert freed() == 1


@pytest.mark.parametrize(
    "name", ["table", "capsule", "numpy", pytest.param("torch", marks=pytest.mark.torch)]
)
def test_every_allocation_fails_once(name):
    run(
        f"from lifetime import test_failing_allocations as tests; tests.fail_every_allocation({name!r})",
        timeout=120,
    )


def fail_allocations_of_a_product() -> None:
    x = gi.ones((2, 2), device="cpu")
    x @ x
    for step in range(8):  # later ones fail in functions of Python
        testcapi.set_nomemory(step, step + 1)
        try:
            x @ x
        except MemoryError:
            pass
        finally:
            testcapi.remove_mem_hooks()


def test_failing_allocation_of_an_operator_is_a_memory_error():
    run(
        "from lifetime import test_failing_allocations as tests; tests.fail_allocations_of_a_product()"
    )


# MAKE_FUNCTION of Python 3.12 releases its code object once too often where the function cannot be allocated, and a
# later call of the same code ends the process.
python_ends = pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="Python 3.12 ends where a function cannot be allocated"
)


MADE = {
    "fuse": lambda: gi.fuse(lambda x: x + 1),
    "ElementwiseKernel": lambda: gi.ElementwiseKernel(
        "float32 x", "float32 y", "y = x", host=np.copy
    ),
    "capture": lambda: gi.capture(device="cpu"),
    "stream": lambda: gi.stream(gi.Stream("cpu")).__enter__,
    "event": lambda: gi.Event("cpu").record,
    "blocks": lambda: (gi.no_copies(), gi.allow_tf32(), gi.device("cpu").__enter__),
    "RawKernel": lambda: gi.RawKernel('extern "C" __global__ void f() {}', "f"),
}


def fail_allocations_of_objects() -> None:
    for name, make in MADE.items():
        make()
        failed = step = 0
        while step < failed + 3:
            testcapi.set_nomemory(step, step + 1)
            try:
                make()
            except (MemoryError, SystemError):
                failed = step + 1
            finally:
                testcapi.remove_mem_hooks()
            step += 1
        assert failed, name


@python_ends
def test_failing_allocation_of_an_object_is_an_error():
    run(
        "from lifetime import test_failing_allocations as tests; tests.fail_allocations_of_objects()"
    )


FIRST_CALLS = {
    "export": lambda x: np.from_dlpack(x),
    "import": lambda x: gi.from_dlpack(np.ones(3, "float32")),
    "cast": lambda x: x.astype("float64"),
    "refusal": lambda x: hasattr(x, "no_such_name"),
    "zeros": lambda x: gi.zeros((2, 2), device="cpu"),
    "ones": lambda x: gi.ones(2),
    "range": lambda x: gi.arange(3, dtype="int16", device="cpu"),
    "index": lambda x: x[x > 0],
    "fused": gi.fuse(lambda x: x + 1),
}


def fail_allocations_of_first_calls() -> None:
    """In a process for each allocation, which has kept nothing of an earlier call; the next call succeeds."""
    x = gi.ones(3, device="cpu")
    for name, call in FIRST_CALLS.items():
        for step in range(60):
            child = os.fork()
            if child:
                assert os.waitpid(child, 0)[1] == 0, (name, step)
                continue
            sys.unraisablehook = id  # a generator that cannot be closed
            error = None
            testcapi.set_nomemory(step, step + 1)
            try:
                call(x)
            except BaseException as raised:
                error = raised
            testcapi.remove_mem_hooks()
            # Python names the function that raised nothing, or returned beside an error; some of its own do so too.
            if isinstance(error, SystemError) and "gpuinterop" in str(error):
                print(name, step, error, flush=True)
                os._exit(1)
            call(x)
            os._exit(0)


@python_ends
def test_failing_allocation_of_a_first_call_is_an_error_of_that_call():
    run(
        "from lifetime import test_failing_allocations as tests; tests.fail_allocations_of_first_calls()",
        timeout=300,
    )


TEXTS = """
import gpuinterop as gi
from doubles import internals
from peers import peer

x = gi.zeros(3, device="cpu")
failed = 0
for n in range(8):
    peer().peer_fail_new(n)
    try:
        internals.look_into(x, "a text that std::string allocates for")
    except MemoryError:
        failed += 1
    finally:
        peer().peer_fail_new(-1)
assert failed
"""


@pytest.mark.skipif(
    "GPUINTEROP_SANITIZED" in os.environ,
    reason="not under AddressSanitizer: it brings an operator new of its own",
)
def test_text_without_memory_for_it_is_an_error():
    run(TEXTS, LD_PRELOAD=str(fake_driver.built("peer", "peer.cpp")))
