"""Every malformed input gets a Python exception of the promised class, and none ends the process.

A case that does end it fails as the crash of a pytest-xdist worker. The cases of CUDA memory run on the fake driver.
"""

from __future__ import annotations

import malformed_dictionaries  # noqa: F401  (these fill the table)
import malformed_producers  # noqa: F401
import malformed_structs  # noqa: F401
import pytest
from doubles import driver, fake_driver
from doubles.on_fake import FAKE
from malformed_table import CASES
from peers import environment, has_compiler, library, start_counting

if FAKE:
    import malformed_cuda  # noqa: F401  (it asks the driver when it is imported)

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

FIRST_USE = """
import ctypes, os
from ctypes import byref, c_size_t, c_void_p
import gpuinterop as gi
from peers import ADDRESS, CUDA, capsule

driver = ctypes.CDLL(os.environ["GPUINTEROP_LIBCUDA"])
context, address = c_void_p(), c_void_p()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(byref(context), 0) == 0
assert driver.cuCtxPushCurrent_v2(context) == 0
assert driver.cuMemAlloc_v2(byref(address), c_size_t(64)) == 0
assert driver.cuCtxPopCurrent_v2(byref(c_void_p())) == 0
try:
    gi.from_dlpack(capsule(device=CUDA, data=ADDRESS))
except ValueError as error:
    assert "does not know" in str(error), error
else:
    raise AssertionError("host memory was taken for the device's")
x = gi.from_dlpack(capsule(device=CUDA, data=address.value))
assert (x.ptr, str(x.device)) == (address.value, "cuda:0")
"""

NO_DRIVER = """
import gpuinterop as gi
from peers import CUDA, Producer, capsule, freed, start_counting

for make in (lambda: capsule(device=CUDA), lambda: Producer(device=CUDA)):
    start_counting()
    kept = make()
    try:
        gi.from_dlpack(kept)
    except gi.GpuInteropError as error:
        assert "driver" in str(error) and error.fix, error
    else:
        raise AssertionError("CUDA memory was accepted without a driver")
    assert freed() == 0
"""


def test_an_import_may_be_the_first_use_of_the_driver():
    """A pointer that comes before anything here has asked the driver."""
    library()
    driver.run(FIRST_USE, fake_driver.library(), **environment())


def test_a_pointer_of_a_device_that_no_driver_answers_for():
    library()
    driver.run(NO_DRIVER, "/nonexistent/libcuda.so.1", **environment())


def answer(function) -> tuple[list[str], str]:
    """The classes and words of what a case raises."""
    try:
        function()
    except BaseException as error:  # the answer itself
        return [cls.__name__ for cls in type(error).__mro__], str(error)
    return [], ""


def case_marks(case) -> list[pytest.MarkDecorator]:
    needs = [getattr(pytest.mark, case.needs)] if case.needs else []
    return [*needs, pytest.mark.fake_driver] if case.cuda else needs


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=case_marks(case), id=case.name) for case in CASES.values()]
)
def test_malformed_input_is_refused_with_the_promised_error(case):
    start_counting()
    classes, message = answer(case.run)
    if not case.expected:
        assert not classes, f"{classes[0]}: {message}"
        return
    assert classes, "was accepted"
    assert {cls.__name__ for cls in case.expected} <= set(classes), f"{classes}: {message}"
    assert case.words in message, message
