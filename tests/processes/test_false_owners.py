"""Owners of GPU memory that send an opener false answers, by each mechanism, on the real and on the fake driver.

Another process opens the memory, because a driver opens no event and no legacy handle in the process that made it.
"""

import json
import os

import pytest
from helpers.false_owner import FalseOwner, parts
from helpers.gpu_memory import MAKERS, VALUES

import gpuinterop as gi
from gpuinterop.processes import service

pytestmark = pytest.mark.driver


@pytest.fixture(params=MAKERS)
def truth(request):
    """What the owner of an array answers, with the descriptors; the owner keeps what the answer names."""
    x = MAKERS[request.param]()
    x[...] = VALUES
    handle = gi.share(x)
    assert handle.mechanism == request.param
    _, address, token, _ = parts(handle)
    lease, answer, given = service.connect(address, token)
    yield answer, given
    service.end_lease(lease)
    service.close_all(given)


# What a faulty owner of the same user may say of 96 bytes on a GPU, beside the handle or descriptor of their memory.
ANSWERS = {
    "a larger allocation": {"size": 1 << 30, "bytes": 1 << 30, "shape": (1 << 14, 1 << 14), "strides": (1 << 16, 4)},
    "more bytes than the allocation": {"bytes": 1 << 30}, "beyond its end": {"start": 1 << 30},
    "before its start": {"start": -4096}, "no size": {"size": None}, "a negative size": {"size": -96},
    "strides outside": {"strides": (1 << 30, 4)}, "another shape": {"shape": (4000, 6)},
    "an offset outside": {"inside": 1 << 20}, "a wrong dtype": {"dtype": "O"},
    "another GPU": {"gpu": "00" * 16}, "no GPU": {"gpu": None},
    "half an event": {"event": "00" * 32}, "an event that is no text": {"event": 7},
    "an event of other letters": {"event": "x" * 128},
}  # fmt: skip
OPEN = "r = h.open().tolist()"


def answered(truth, change, opener, code=OPEN):
    answer, given = truth
    with FalseOwner(json.dumps(answer | change).encode(), given) as handle:
        return opener.run(handle, code)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_false_answer_reads_no_other_memory(name, truth, opener):
    right = repr(VALUES.tolist())
    assert answered(truth, {}, opener) == right  # it is the answer that is wrong below
    count = "import gc; gc.collect(); r = len(os.listdir('/proc/self/fd'))"
    before = opener.run(None, count)
    assert "Error: " in answered(truth, ANSWERS[name], opener)
    assert opener.run(None, count) == before
    assert answered(truth, {}, opener) == right


def test_a_false_size_and_start_do_not_reach_the_opener_s_own_memory(truth, opener):
    code = "kept['z'] = gi.zeros(1 << 26, device='cuda'); r = kept['z'].ptr - h.open().ptr"
    start = abs(int(answered(truth, {}, opener, code))) + (1 << 27)
    found = answered(truth, {"size": 1 << 60, "start": start}, opener)
    opener.run(None, "kept.clear()")
    assert "Error: " in found


COUNT = "r = open('/proc/self/maps').read().count('memfd:fakecuda')"
FAILED = f"""
try:
    h.open()
except gi.GpuInteropError as error:
    kept["error"] = error
{COUNT}
"""


@pytest.mark.fake_driver
def test_memory_is_unmapped_though_the_error_is_kept(truth, opener):
    before = opener.run(None, COUNT)
    assert answered(truth, {"event": "00" * 32}, opener, FAILED) == before
    assert "64 bytes" in opener.run(None, "r = str(kept.pop('error'))")


REFUSED = """
import ctypes
driver = ctypes.CDLL(os.environ["GPUINTEROP_LIBCUDA"])
events = lambda: driver.fakecuda_calls(b"cuIpcOpenEventHandle") - driver.fakecuda_calls(b"cuEventDestroy")
before = events()
driver.fakecuda_fail(b"cuStreamWaitEvent", 999, 0, 1)
try:
    h.open()
except gi.CudaError as error:
    r = str(error).count("cuStreamWaitEvent"), events() - before
"""


@pytest.mark.fake_driver
def test_an_event_that_no_stream_waits_for_is_destroyed(truth, opener):
    answered(truth, {}, opener)  # a first use has further events
    assert answered(truth, {}, opener, REFUSED) == repr((1, 0))


@pytest.mark.parametrize("name", ["a file", "a pipe", "nothing", "two descriptors"])
@pytest.mark.parametrize("truth", ["vmm"], indirect=True)
def test_an_owner_that_sends_no_memory_of_a_gpu_is_refused(name, truth, opener):
    answer, given = truth
    file, pipe = os.memfd_create("test"), os.pipe()
    sent = {"a file": [file], "a pipe": [pipe[0]], "nothing": [], "two descriptors": given * 2}
    assert "Error: " in answered((answer, sent[name]), {}, opener)
    service.close_all([file, *pipe])
