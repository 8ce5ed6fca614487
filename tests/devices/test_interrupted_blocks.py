"""A signal at any instruction around a block leaves the state of before, or that of the block around it."""

import sys
import threading
import types
from functools import partial

import pytest
from doubles import internals, interrupts

import gpuinterop as gi
from gpuinterop import devices


def copies_are_counted(x):
    with gi.count_copies() as copies:
        x.copy()
    return copies.count


STATES = {
    "copies": copies_are_counted,
    "default device": lambda x: str(gi.default_device()),
    "stream": lambda x: devices.current_stream(x.device),
    "capture": lambda x: float((x + x)[0, 0]),
}
BLOCKS = {
    "no_copies": lambda x: gi.no_copies,
    "count_copies": lambda x: gi.count_copies,
    "log_transfers": lambda x: gi.log_transfers,
    "allow_tf32": lambda x: gi.allow_tf32,
    "device": lambda x: lambda: gi.device("cpu"),
    "capture": lambda x: lambda: gi.capture(device=x.device),
    "a stream": lambda x: lambda: gi.Stream(x.device),
    "stream": lambda x: partial(gi.stream, gi.Stream(x.device)),
    "a stream of gpuinterop alone": lambda x: partial(devices.stream, gi.Stream(x.device)),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_an_interrupt_leaves_no_block_entered(name, device):
    x = gi.ones((64, 64), device=device)
    make = BLOCKS[name](x)
    kept = []  # as a traceback that is kept would

    def run():
        block = make()
        kept.append(block)
        with block:
            pass

    run()
    before = {what: state(x) for what, state in STATES.items()}
    interrupted = 0
    for _ in interrupts.in_each_opcode(run):
        assert {what: state(x) for what, state in STATES.items()} == before
        interrupted += 1
    assert interrupted > 10


class Library(types.ModuleType):
    """Its current stream is set by functions of Python."""

    current = "its own"

    def use(self, stream):
        self.current = stream
        return self.current


@pytest.mark.driver
def test_an_interrupt_leaves_no_stream_current_in_a_library_of_python(monkeypatch, device):
    library = Library("one")
    monkeypatch.setitem(sys.modules, "one", library)
    use = partial(partial, library.use)
    internals.enter_streams_by(
        monkeypatch, one=lambda _, stream: [(use(stream), use(library.current))]
    )
    block, inside = gi.stream(gi.Stream(device)), []

    def run():
        with block as stream:
            inside.append(library.current == stream)

    run()
    assert inside == [True]
    interrupted = 0
    for _ in interrupts.in_each_opcode(run):
        assert library.current == "its own"
        assert devices.current_stream(device).handle == 1
        interrupted += 1
    assert interrupted > 10


@pytest.mark.parametrize("leave_first", [True, False])
def test_a_scope_that_another_thread_leaves(leave_first):
    """It counts and forbids copies of the thread that entered it only."""
    x, scope = gi.ones(3, device="cpu"), gi.no_copies()
    scope.__enter__()
    x_copied = []
    thread = threading.Thread(
        target=lambda: (leave_first and scope.__exit__(None, None, None), x_copied.append(x.copy()))
    )
    thread.start()
    thread.join()
    assert x_copied
    if not leave_first:
        with pytest.raises(gi.CopyForbiddenError):
            x.copy()
        scope.__exit__(None, None, None)
    x.copy()
