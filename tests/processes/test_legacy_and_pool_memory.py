"""Memory of cudaMalloc and of pools between processes, on the real and on the fake driver: it ends with its owner."""

import pickle
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.gpu_memory import MAKERS, VALUES

import gpuinterop as gi

pytestmark = pytest.mark.driver
MECHANISMS = ("legacy", "pool")

OWNER = """
import pickle, sys
sys.path.append(sys.argv[1])
import gpuinterop as gi
from helpers.gpu_memory import MAKERS, VALUES
from gpuinterop.processes import service

service.EXIT_SECONDS = float(sys.argv[3])
x = MAKERS[sys.argv[2]]()
x[...] = VALUES
handle = gi.share(x)
print(pickle.dumps(handle).hex(), flush=True)
sys.stdin.read()
"""


@contextmanager
def owner(mechanism, seconds):
    """A process that ends when its input is closed; gives it and the handle's text."""
    words = [sys.executable, "-c", OWNER, str(Path(__file__).parents[1]), mechanism, str(seconds)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process, bytes.fromhex(process.stdout.readline().decode())
    finally:
        process.kill()
        process.wait(30)
        process.stdin.close()
        process.stdout.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_arrays_of_one_allocation_end_alone_and_both_sides_see_writes(mechanism, opener):
    x = MAKERS[mechanism]()
    x[...] = VALUES
    first, second = gi.share(x), gi.share(x[1:])
    assert (first.mechanism, gi.explain(x, "process").shared) == (mechanism, True)
    opener.run(first, "kept['a'] = h.open(); kept['b'] = h.open()")
    assert opener.run(second, "kept['c'] = h.open(); r = kept['c'].tolist()") == repr(
        VALUES[1:].tolist()
    )
    assert (first.openers, second.openers) == (2, 1)
    opener.run(None, "del kept['a']; kept.pop('b')[1, 2] = -1; gi.synchronize()")
    assert first.wait(20)
    assert x[1, 2].item() == -1
    x[1, 2] = -2
    gi.synchronize()
    assert opener.run(None, "r = kept.pop('c')[0, 2].item()") == "-2.0"
    assert second.wait(20)
    assert opener.run(first, "r = h.open()[0].tolist()") == repr(VALUES[0].tolist())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_owner_waits_for_its_openers(mechanism, opener):
    with owner(mechanism, 60) as (process, text):
        opener.run(text, "kept['y'] = h.open()")
        process.stdin.close()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        with pytest.raises(gi.ExchangeError, match="released"):
            pickle.loads(text).open()
        assert opener.run(None, "r = kept.pop('y')[0].tolist()") == repr(VALUES[0].tolist())
        assert process.wait(30) == 0


@pytest.mark.fake_driver  # the real driver leaves memory that ends before its opener undefined
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_owner_does_not_wait_for_a_stopped_opener_for_ever(mechanism, opener):
    with owner(mechanism, 0.5) as (process, text):
        opener.run(text, "kept['y'] = h.open()")
        opener.process.send_signal(signal.SIGSTOP)
        try:
            process.stdin.close()
            assert process.wait(30) == 0
        finally:
            opener.process.send_signal(signal.SIGCONT)
    assert opener.run(None, "kept.clear()") == "None"
