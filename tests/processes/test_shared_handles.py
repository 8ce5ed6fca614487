"""Handles to an array's memory: what another process sees, how long, and what it is refused."""

import errno
import gc
import json
import multiprocessing
import os
import pickle
import pickletools
import signal
import socket
import subprocess
import sys
import threading
import time
from multiprocessing import shared_memory
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.false_owner import FalseOwner, parts
from helpers.layouts import values
from helpers.opener import Opener, descriptors, open_in_cycles

import gpuinterop as gi
from gpuinterop.processes import opened, service

# Python, and JAX if another test has imported it, warn of forks of a process with threads.
FORKS = pytest.mark.filterwarnings("ignore:.*fork")


# What an opener does before it maps the memory: CODE finds the owner's descriptors in `given`.
CONNECT = """
import socket
address, token, _ = h.__reduce__()[1]
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as lease:
    lease.connect(chr(0) + address)
    lease.send(token)
    _, given, _, _ = socket.recv_fds(lease, 1 << 16, 4)
    try:
        CODE
    finally:
        os.close(given[0])
"""


def forked(act):
    """Run a function in a child that ends whatever it raises, with exit code 0 if the function returns true."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if act() else 1
        finally:
            os._exit(code)
    return child


def become_another_user():
    os.setgid(65534)
    os.setuid(65534)


def shared(values, device="cpu"):
    x = gi.shared_empty(values.shape, values.dtype, device=device)
    x[...] = values
    return x


def numbers():
    return shared(np.arange(24.0, dtype="float32").reshape(4, 6))


VIEWS = {
    "whole": lambda x: x, "transposed": lambda x: x.T, "reversed": lambda x: x[::-1, ::-1],
    "steps": lambda x: x[1::2, ::3],
    "offset": lambda x: x[2:, 3:], "broadcast": lambda x: x[:1].broadcast_to(5, 6), "0-d": lambda x: x[1, 2],
    "new axis": lambda x: x[:, None], "one": lambda x: x[3:, 5:], "mixed": lambda x: x[::-2, 1::2].T,
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_another_process_gets_the_same_view(name, opener):
    x = VIEWS[name](numbers())
    handle = gi.share(x)
    code = "y = h.open(); r = type(y).__name__, str(y.dtype), y.shape, y.strides, y.readonly, y.tolist()"
    expected = (type(x).__name__, "float32", x.shape, x.strides, x.readonly, x.tolist())
    assert opener.run(handle, code) == repr(expected)


@pytest.mark.parametrize("dtype", ["int8", "uint64", "complex128", "bool", "float16"])
def test_every_dtype_is_opened(dtype, opener):
    x = shared(values(dtype, (3, 5)))[:, 1:]
    expected = repr(("GpuArray", dtype, x.tolist()))
    assert (
        opener.run(gi.share(x), "y = h.open(); r = type(y).__name__, str(y.dtype), y.tolist()")
        == expected
    )


def test_dtypes_of_ml_dtypes_are_opened(opener):
    pytest.importorskip("ml_dtypes")
    x = gi.shared_empty((2, 2), "bfloat16", device="cpu")
    x[...] = [[1, 2], [3, 4]]
    assert opener.run(gi.share(x.T), "y = h.open(); r = str(y.dtype), y.tolist()") == repr(
        ("bfloat16", [[1.0, 3.0], [2.0, 4.0]])
    )


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (0, 5)])
def test_empty_arrays_are_opened(shape, opener):
    for x in (gi.shared_empty(shape, device="cpu"), gi.zeros(shape, "int16", device="cpu")):
        handle = gi.share(x)
        assert handle.mechanism == "none"
        assert opener.run(handle, "y = h.open(); r = y.shape, str(y.dtype)") == repr(
            (shape, str(x.dtype))
        )


def test_both_processes_see_writes_and_nothing_is_copied(opener):
    x = numbers()
    with gi.no_copies():
        handle = gi.share(x[::-1])
    opened = opener.run(
        handle, "with gi.no_copies(): kept['y'] = h.open()\nkept['y'][0] = 7; r = 1"
    )
    assert opened == "1"
    assert x[3].tolist() == [7] * 6
    x[0, 0] = -1
    assert opener.run(handle, "r = kept.pop('y')[3, 0].item()") == "-1.0"
    assert handle.wait(10)


def test_a_read_only_array_cannot_be_written_by_the_opener(opener):
    x = numbers()
    view = x[:2]
    view.readonly = True
    handle = gi.share(view)
    assert opener.run(handle, "h.open()[0] = 1").startswith("ReadOnlyError")
    # The descriptor is read-only too, so no mapping of it can be written.
    code = "import fcntl; r = fcntl.fcntl(given[0], fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY"
    assert opener.run(handle, CONNECT.replace("CODE", code)) == "True"
    assert x[0].tolist() == [0, 1, 2, 3, 4, 5]


def test_explain_names_the_mechanism_and_the_reason():
    x = numbers()
    plan = gi.explain(x, "process")
    assert plan.shared
    assert "descriptor" in plan.reason
    plan = gi.explain(gi.zeros(3, device="cpu"), "process")
    assert (plan.refused, plan.code) == (True, "protocol")
    assert "shared_empty" in plan.fix
    plan = gi.explain(np.zeros(3), "process", copyif=True)
    assert (plan.copied, plan.bytes) == (True, 24)
    with gi.no_copies():
        assert gi.explain(np.zeros(3), "process", copyif=True).refused


def test_ordinary_memory_is_refused_or_copied(opener):
    x = gi.arange(6, device="cpu").reshape(2, 3).T
    with pytest.raises(gi.ExchangeError) as error:
        gi.share(x)
    assert error.value.reason == "protocol"
    with gi.count_copies() as copies:
        handle = gi.share(x, copyif=True)
    assert (copies.count, copies.bytes) == (1, 24)
    x[...] = 0
    assert opener.run(handle, "y = h.open(); r = type(y).__name__, y.tolist()") == repr(
        ("CudaNdarray", [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])
    )
    with gi.no_copies(), pytest.raises(gi.CopyForbiddenError):
        gi.share(x, copyif=True)


# ---- memory of other libraries ----------------------------------------------------------------------


def test_memory_of_python_s_shared_memory_is_shared(opener):
    block = shared_memory.SharedMemory(create=True, size=800)
    try:
        n = np.frombuffer(block.buf, "float64")[4:]
        n[:] = 3
        handle = gi.share(n[::2])
        assert opener.run(handle, "y = h.open(); y[0] = 9; r = y.sum().item()") == str(9.0 + 47 * 3)
        assert n[0] == 9
        assert handle.wait(10)
        del n, handle
        gc.collect()
    finally:
        block.close()
        block.unlink()


def test_mapped_files_are_shared_with_their_rights(opener, tmp_path):
    np.arange(4000, dtype="int32").tofile(tmp_path / "numbers")
    for mode in ("r+", "r"):
        n = np.memmap(tmp_path / "numbers", "int32", mode)[1100:]
        assert gi.explain(n, "process").shared
        assert opener.run(gi.share(n), "y = h.open(); r = y[:2].tolist(), y.readonly") == repr(
            ([1100, 1101], mode == "r")
        )
    private = np.memmap(tmp_path / "numbers", "int32", "c")
    assert gi.explain(private, "process").refused


@pytest.mark.parametrize("other", ["a file", "a pipe"])
def test_a_path_that_names_another_file_when_it_is_opened_shares_nothing(
    other, tmp_path, monkeypatch
):
    paths = tmp_path / "numbers", tmp_path / "other"
    np.zeros(8).tofile(paths[0])
    n = np.memmap(paths[0], mode="r")
    np.zeros(8).tofile(paths[1]) if other == "a file" else os.mkfifo(paths[1])
    opens = os.open
    monkeypatch.setattr(os, "open", lambda path, flags: opens(paths[1], flags))
    plan = gi.explain(n, "process")
    assert plan.refused


@pytest.mark.torch
def test_shared_tensors_are_shared(opener):
    import torch

    t = torch.arange(12.0).reshape(3, 4).share_memory_()
    assert opener.run(gi.share(t.T), "y = h.open(); y[0] = 5; r = y.shape, y[1].tolist()") == repr(
        ((4, 3), [1.0, 5.0, 9.0])
    )
    assert t[:, 0].tolist() == [5, 5, 5]


def test_an_opened_array_goes_to_other_libraries_and_can_be_shared_again(opener):
    x = numbers()
    handle = gi.share(x)
    code = """
y = h.open()
np.asarray(y)[1, 1] = 50
kept["again"] = gi.share(y[1:])
r = pickle.dumps(kept["again"])
"""
    again = pickle.loads(eval(opener.run(handle, code)))
    del handle
    y = again.open()
    assert (y.shape, y[0, 1].item(), x[1, 1].item()) == ((3, 6), 50, 50)
    y[0, 1] = 51
    assert x[1, 1].item() == 51
    assert opener.run(b"\x80\x04N.", "kept.clear()") == "None"


# ---- lifetimes ----------------------------------------------------------------------------------


def test_a_handle_opens_several_times_and_in_several_processes(opener):
    handle, other = gi.share(numbers()), Opener()
    opener.run(handle, "kept['a'], kept['b'] = h.open(), h.open()")
    assert other.run(handle, "kept['c'] = h.open(); r = kept['c'].sum().item()") == "276.0"
    assert handle.openers == 3
    assert not handle.wait(0.01)
    other.end()  # its lease ends with it
    opener.run(handle, "kept.clear()")
    assert handle.wait(10)
    assert handle.openers == 0


def test_arrays_of_several_openings_are_seen_to_overlap(opener):
    """A file is mapped once in a process, also for handles of other parts of it."""
    x = gi.shared_empty(8, "float64", device="cpu")
    x.set(np.arange(8.0))
    opener.run(gi.share(x[1:]), "kept['b'] = h.open()")
    code = "a = h.open(); a[:7] = kept.pop('b')[::-1]; r = a.tolist()"
    assert opener.run(gi.share(x), code) == repr([7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 7.0])


def test_a_block_opens_the_array_and_ends_the_lease(opener):
    handle = gi.share(numbers())
    assert opener.run(handle, "with h as y: y[0, 0] = 4; r = 0\ndel y") == "0"
    assert handle.wait(10)
    with handle as own:
        assert own[0, 0].item() == 4
        assert handle.openers == 0


@pytest.mark.parametrize("asked", ["h.openers", "h.wait()", "gi.share(h.open()); h.wait(0)"])
def test_only_the_owner_s_process_knows_the_openers(asked, opener):
    handle = gi.share(numbers())
    assert opener.run(handle, asked).startswith("ExchangeError")
    assert (handle.wait(10), handle.openers) == (True, 0)


@pytest.mark.parametrize("timeout", ["a", True, [1], 1j, -1, -0.5, float("nan"), np.float64("nan")])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(timeout):
    handle = gi.share(numbers())
    with pytest.raises(gi.GpuInteropError, match="wait: expected timeout=None or a") as caught:
        handle.wait(timeout)
    is_number = isinstance(timeout, (int, float)) and timeout is not True
    assert isinstance(caught.value, ValueError if is_number else TypeError)


@pytest.mark.parametrize("timeout", [None, float("inf"), 10**400, np.float32(30), np.int8(30)])
def test_a_wait_may_be_long_and_ends_with_the_last_opener(timeout, opener):
    handle = gi.share(numbers())
    opener.run(handle, "kept['y'] = h.open()")
    assert not handle.wait(0)
    opener.send(None, "import time; time.sleep(0.2); kept.clear()")
    assert handle.wait(timeout)
    assert eval(opener.process.stdout.readline()) == "None"


def test_the_garbage_collector_may_end_handles_while_one_is_made(monkeypatch):
    kept, is_late = [gi.share(numbers()) for _ in range(3)], service._Entry.is_late

    def collect(entry):
        kept.clear()
        return is_late(entry)

    monkeypatch.setattr(service._Entry, "is_late", collect)
    handle = gi.share(numbers())
    assert (kept, handle.openers) == ([], 0)


def test_a_released_handle_is_refused_and_open_arrays_stay(opener):
    x = numbers()
    handle = gi.share(x)
    text = pickle.dumps(handle)
    assert opener.run(text, "kept['y'] = h.open(); r = 1") == "1"
    live = gi.devices.memory_stats("cpu")["live_arrays"]
    del handle, x
    gc.collect()
    assert "released" in opener.run(text, "h.open()")
    with pytest.raises(gi.ExchangeError, match="released"):
        pickle.loads(text).open()
    assert opener.run(text, "r = kept.pop('y').sum().item()") == "276.0"
    deadline = time.monotonic() + 10
    while gi.devices.memory_stats("cpu")["live_arrays"] >= live and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gi.devices.memory_stats("cpu")["live_arrays"] < live


OWNER = """
import pickle, sys
import gpuinterop as gi
x = gi.shared_empty(4, device="cpu")
x[...] = 6
handle = gi.share(x)
print(pickle.dumps(handle).hex(), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("crash", [False, True])
def test_open_memory_outlives_its_owner_and_its_handle_does_not(crash):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    handle = pickle.loads(bytes.fromhex(owner.stdout.readline().decode()))
    owner.stdout.close()
    y = handle.open()
    if crash:
        owner.kill()
    owner.stdin.close()
    owner.wait(30)
    y[0] = 1
    assert y.tolist() == [1, 6, 6, 6]
    with pytest.raises(gi.ExchangeError, match="ended"):
        handle.open()


def test_a_crash_of_the_opener_ends_its_leases():
    handle, other = gi.share(numbers()), Opener()
    other.run(handle, "kept['y'] = h.open()")
    assert handle.openers == 1
    other.process.send_signal(signal.SIGKILL)
    other.process.wait(30)
    assert handle.wait(10)
    other.process.stdin.close()
    other.process.stdout.close()


def in_child(handle, queue):
    with handle as y:
        y[0, 0] += 1
        queue.put(y.shape)


@pytest.mark.parametrize("method", ["spawn", "fork"])
@FORKS
def test_multiprocessing_carries_handles(method):
    context = multiprocessing.get_context(method)
    x, queue = numbers(), context.Queue()
    handle = gi.share(x)
    children = [
        context.Process(target=in_child, args=(handle, queue))
        for _ in range(1 + (method == "fork"))
    ]
    for child in children:
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert queue.get(timeout=10) == (4, 6)
    assert x[0, 0].item() == len(children)
    queue.close()
    queue.join_thread()


def test_threads_open_and_close_at_once():
    handle, other = gi.share(numbers()), Opener()
    code = """
import threading
sums = []
def work():
    for _ in range(50):
        sums.append(h.open().sum().item())
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
r = len(sums), set(sums)
"""
    assert other.run(handle, code) == "(200, {276.0})"
    assert handle.wait(10)
    other.end()


@FORKS
def test_an_owner_that_forks_goes_on_answering(opener):
    handle = gi.share(numbers())
    opener.run(handle, "kept['y'] = h.open()")
    child = forked(lambda: gi.share(numbers()).open().sum().item() == 276)
    assert os.waitpid(child, 0)[1] == 0
    assert (
        opener.run(handle, "r = kept.pop('y').sum().item(), h.open().sum().item()")
        == "(276.0, 276.0)"
    )
    assert handle.wait(10)


FORK_IN_OPEN = """
import warnings; warnings.simplefilter("ignore")
from gpuinterop.processes import service
receive, children = service.receive, []
def forks(connection):
    children.append(os.fork())
    if not children[0]:
        import time; time.sleep(60); os._exit(0)
    return receive(connection)
service.receive = forks
try:
    h.open()
finally:
    service.receive = receive
r = children[0]
"""


def test_a_process_forked_during_an_opening_does_not_keep_the_lease(opener):
    """As by a thread of the opener."""
    handle = gi.share(numbers())
    child = int(opener.run(handle, FORK_IN_OPEN))
    try:
        assert handle.wait(10)
    finally:
        os.kill(child, signal.SIGKILL)


FORK_UNDER_LOCK = """
import signal, threading, warnings
warnings.simplefilter("ignore")
from gpuinterop.processes import opened
y, held, done = h.open(), threading.Event(), threading.Event()
def hold():
    with opened._lock:
        held.set()
        done.wait(60)
thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if not child:
    signal.alarm(20)
    del y
    os._exit(0)
done.set()
thread.join()
r = os.waitpid(child, 0)[1]
"""


def test_a_child_of_a_fork_ends_arrays_while_the_parent_opens_others(opener):
    assert opener.run(gi.share(numbers()), FORK_UNDER_LOCK) == "0"


@pytest.mark.parametrize("late", range(0, 80, 10))
def test_an_owner_that_is_killed_while_another_process_opens(late):
    """Each opening gives the memory or the error that the owner has ended."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    handle = pickle.loads(bytes.fromhex(owner.stdout.readline().decode()))
    before = descriptors()
    timer = threading.Timer(late / 1000, owner.kill)
    timer.start()
    try:
        with pytest.raises(gi.ExchangeError, match="ended"):
            while True:
                assert handle.open().tolist() == [6] * 4
    finally:
        timer.join()
        owner.wait(30)
    assert descriptors() <= before
    owner.stdin.close()
    owner.stdout.close()


def test_many_processes_open_one_handle_at_once():
    handle, openers = gi.share(numbers()), [Opener() for _ in range(4)]
    code = "r = sum(h.open().sum().item() for _ in range(200))"
    for other in openers:
        other.send(handle, code)
    assert [eval(other.process.stdout.readline()) for other in openers] == [repr(276.0 * 200)] * 4
    assert handle.wait(10)
    for other in openers:
        other.end()


def test_connections_without_a_token_keep_no_opener_out(opener):
    handle = gi.share(numbers())
    _, address, _, _ = parts(handle)
    waiting = []
    for _ in range(150):  # more than the queue of the socket
        waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        service._reach(waiting[-1], address)
    assert opener.run(handle, "r = h.open().size") == "24"
    for connection in waiting:
        connection.close()


# ---- hostile handles ------------------------------------------------------------------------------


def test_forged_and_truncated_handles_are_refused():
    handle = gi.share(numbers())
    make, address, token, shown = parts(handle)
    with pytest.raises(gi.ExchangeError, match="released"):
        make(address, os.urandom(16), shown).open()
    with pytest.raises(gi.ExchangeError, match="ended"):
        make("gpuinterop-1-" + "0" * 16, token, shown).open()
    for wrong in (
        (address, token[:15], shown), (address, token + b"x", shown), (address, token.hex(), shown),
        ("other socket", token, shown), (address + "\0", token, shown), (None, token, shown),
        ("gpuinterop-1\u0663-" + "0" * 16, token, shown), ("gpuinterop-" + "1" * 200 + "-" + "0" * 16, token, shown),
        (address, token, {}), (address, token, None), (address.encode(), token, shown),
    ):  # fmt: skip
        with pytest.raises(gi.ExchangeError, match="made"):
            make(*wrong)
    text = pickle.dumps(handle)
    for length in range(0, len(text), 7):
        with pytest.raises(
            (pickle.UnpicklingError, EOFError, ValueError, TypeError, gi.ExchangeError)
        ):
            pickle.loads(text[:length]).open()


def test_pickles_name_functions_of_gpuinterop_and_numpy_alone():
    x = numbers()
    kernel = gi.RawKernel("__global__ void k() {}", "k")
    for sent in (
        gi.share(x),
        x,
        x.T,
        gi.device("cpu"),
        kernel,
        gi.exp,
        gi.strided(x),
        gi.explain(x, "numpy"),
    ):
        named = [text.rpartition(" ")[0] for text in globals_of(pickle.dumps(sent, 2))]
        assert {name.partition(".")[0] for name in named} <= {
            "gpuinterop",
            "numpy",
            "copy_reg",
            "_codecs",
        }


def globals_of(text):
    return [str(value) for code, value, _ in pickletools.genops(text) if code.name == "GLOBAL"]


def test_the_layout_of_a_handle_is_the_owner_s_whatever_the_pickle_says(opener):
    make, address, token, shown = parts(handle := gi.share(numbers()[:2]))
    forged = make(
        address, token, {**shown, "shape": (1 << 40,), "dtype": "float64", "readonly": False}
    )
    assert opener.run(forged, "r = h.open().shape") == "(2, 6)"
    assert handle.wait(10)


def test_the_socket_answers_only_whole_tokens(opener):
    handle = gi.share(numbers())
    _, address, token, _ = parts(handle)
    for text in (token[:8], token + token, b"", b"x" * 10_000, os.urandom(16)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(f"\0{address}")
            if text:
                connection.send(text)
            else:
                connection.shutdown(socket.SHUT_WR)
            connection.settimeout(10)
            answer, given, _, _ = socket.recv_fds(connection, 1 << 16, 4)
            assert answer in (b"", b"{}")
            assert given == []
    assert handle.openers == 0
    assert opener.run(handle, "r = h.open().size") == "24"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
@FORKS
def test_another_user_gets_no_answer():
    handle = gi.share(numbers())
    _, address, token, _ = parts(handle)

    def ask():
        become_another_user()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(f"\0{address}")
            try:
                connection.send(token)
                answer, given, _, _ = socket.recv_fds(connection, 1 << 16, 4)
            except OSError:
                answer, given = b"", []
        return answer == b"" and not given

    child = forked(ask)
    assert os.waitpid(child, 0)[1] == 0
    assert handle.openers == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
@FORKS
def test_a_socket_of_another_user_is_not_believed():
    name = f"gpuinterop-{os.getpid()}-{os.urandom(8).hex()}"
    ready, told = os.pipe()

    def listen():
        become_another_user()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(f"\0{name}")
            listener.listen()
            os.write(told, b"x")
            connection, _ = listener.accept()
            return connection.recv(64) == b""  # it never receives the token

    child = forked(listen)
    os.read(ready, 1)
    make, _, token, shown = parts(gi.share(numbers()))
    with pytest.raises(gi.ExchangeError, match="user"):
        make(name, token, shown).open()
    assert os.waitpid(child, 0)[1] == 0
    os.close(ready)
    os.close(told)


ANSWERS = {
    "too large": {"bytes": 1 << 30}, "beyond the end": {"start": 1 << 20}, "before the start": {"start": -4096},
    "strides outside": {"strides": (1 << 30, 4)}, "another shape": {"shape": (4000, 6)},
    "a wrong dtype": {"dtype": "O"},
    "an offset outside": {"inside": 1 << 20}, "a negative offset": {"inside": -8},
    "a mechanism that is unknown": {"mechanism": "x"}, "no bytes": {"bytes": 0}, "no numbers": {"bytes": None},
    "a shape below 0": {"shape": (-4, -6)}, "65 axes": {"shape": (1,) * 65, "strides": (0,) * 65},
    "a length beyond 63 bits": {"shape": (1 << 62, 8), "strides": (0, 4)},
    "infinitely many": {"bytes": float("inf")}, "strides of text": {"strides": "ab"},
    "a shape of text": {"shape": "ab"},
    "a GPU without its fields": {"mechanism": "vmm"}, "an empty array nowhere": {"mechanism": "none", "device": "x:y"},
    "a device that is no text": {"mechanism": "none", "device": 7},
}  # fmt: skip
# Texts that no owner sends, and the file that comes with them.
TEXTS = {
    "no JSON": b"{", "a list": b"[1]", "a number": b"7", "nested lists": b"[" * 30_000 + b"]" * 30_000,
    "a part": b'{"mechanism": "file"}', "more than a message": b'"' + b"x" * (1 << 16) + b'"',
}  # fmt: skip


RIGHT = {"mechanism": "file", "device": "cpu", "bytes": 96, "start": 0, "dtype": "float32", "shape": (4, 6),
         "strides": (24, 4), "inside": 0, "readonly": False, "float32": True}  # fmt: skip


@pytest.mark.parametrize("name", [*ANSWERS, *TEXTS])
def test_a_false_answer_of_an_owner_reads_no_other_memory(name):
    """The file and the core limit what is mapped."""
    text = TEXTS.get(name) or json.dumps(RIGHT | ANSWERS[name]).encode()
    with FalseOwner(text) as handle:
        before = descriptors()
        with pytest.raises(gi.GpuInteropError):
            handle.open()
    gc.collect()
    assert descriptors() <= before


OTHER_FILES = {"a pipe": None, "a directory": "/", "a device": "/dev/zero"}


@pytest.mark.parametrize("name", [*OTHER_FILES, "nothing", "two files", "nine files"])
def test_an_owner_that_sends_no_memory_is_refused(name):
    text, opened_files = json.dumps(RIGHT).encode(), []
    if name in OTHER_FILES:
        path = OTHER_FILES[name]
        opened_files = [*os.pipe()] if path is None else [os.open(path, os.O_RDONLY)]
    count = {"nothing": 0, "two files": 2, "nine files": 9}.get(name)
    given = opened_files[:1] if count is None else [0] * count
    try:
        before = descriptors()
        with FalseOwner(text, given) as handle, pytest.raises((gi.ExchangeError, OSError)):
            handle.open()
        assert descriptors() <= before
    finally:
        service.close_all(opened_files)


LIMITED = """
import resource
h.open()
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass
for _ in range(FREE):
    os.close(taken.pop())
try:
    r = h.open().sum().item()
except OSError as error:
    r = error.errno
spare = [os.dup(0) for _ in range(FREE)]
for descriptor in taken + spare:
    os.close(descriptor)
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
"""


@pytest.mark.parametrize("free", range(4))
def test_an_opener_without_free_descriptors_is_told_so(free, opener):
    """The socket needs one, what the owner sends another, the mapping a third."""
    handle = gi.share(numbers())
    expected = 276.0 if free == 3 else errno.EMFILE
    assert opener.run(handle, LIMITED.replace("FREE", str(free))) == repr(expected)
    assert handle.wait(10)


def test_memory_cannot_be_shortened_under_another_process(opener):
    handle = gi.share(numbers())
    code = CONNECT.replace("CODE", "os.ftruncate(given[0], 0)")
    assert opener.run(handle, code).startswith("PermissionError")


def test_an_opener_cannot_forbid_others_to_write(opener):
    handle = gi.share(numbers())
    seal = CONNECT.replace(
        "CODE", "import fcntl; fcntl.fcntl(given[0], 1033, 0x10)"
    )  # F_SEAL_FUTURE_WRITE
    assert opener.run(handle, seal).startswith("PermissionError")
    assert opener.run(handle, "h.open()[0, 0] = 5; r = h.open()[0, 0].item()") == "5.0"


@pytest.mark.parametrize("count", [500, pytest.param(100_000, marks=pytest.mark.slow)])
def test_descriptors_and_mappings_do_not_leak(count, opener):
    open_in_cycles(opener, gi.share(numbers()), count, writes=True)
    before = descriptors()
    for _ in range(200):
        handle = gi.share(gi.shared_empty(5, device="cpu"))
        handle.open()
    del handle
    assert descriptors() <= before + 1


def test_shared_empty_follows_the_rules_of_empty():
    assert gi.shared_empty(3, "int8", device="cpu").dtype == "int8"
    assert gi.shared_empty((), device="cpu").shape == ()
    assert type(gi.shared_empty(2, device="cpu")) is gi.CudaNdarray
    for wrong in (-1, (3, -2), (1 << 62, 8)):
        with pytest.raises(ValueError):
            gi.shared_empty(wrong, device="cpu")
    with pytest.raises((MemoryError, OSError)):
        gi.shared_empty(1 << 55, device="cpu")
    with pytest.raises(TypeError):
        gi.shared_empty(2, object, device="cpu")


def test_objects_that_are_no_arrays_are_refused():
    for wrong in (None, "x", 3, [1, 2], object()):
        with pytest.raises((TypeError, ValueError)):
            gi.share(wrong)
    with pytest.raises(TypeError):
        gi.share(numbers(), copyif="yes")


def test_memory_ends_under_the_lock_that_opening_takes():
    """Else another thread could open an allocation just before this one unmaps it."""
    owned = []

    class Memory:
        def __del__(self):
            owned.append(opened._lock._is_owned())

    held = opened.Held(Memory())
    del held
    assert owned == [True]


# ---- the owner's thread -----------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [False, True])
def test_an_opener_that_ends_before_the_answer_leaves_no_lease(fails):
    begun, closed = threading.Event(), threading.Event()

    def descriptors():
        begun.set()
        assert closed.wait(10)
        if fails:
            raise OSError("no descriptor is free")
        return []

    owner = service.owner()
    token = owner.add(service.Offer(None, {}, descriptors, False))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(f"\0{owner.address}")
        connection.send(token)
        assert begun.wait(10)
    owner.withdraw(token)
    closed.set()
    with owner.changed:
        assert owner.changed.wait_for(lambda: token not in owner.entries, 10)


def test_an_owner_without_free_descriptors_pauses(monkeypatch):
    """Else its thread would take a whole processor until a descriptor is free."""
    pauses = []

    class Listener:
        def accept(self):
            raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(service.time, "sleep", pauses.append)
    service._Owner._accept(SimpleNamespace(listener=Listener()))
    assert pauses == [service._PAUSE]


@pytest.fixture
def busy():
    """A handle whose owner's queue of openers is full, and the owner's socket."""
    address = f"gpuinterop-{os.getpid()}-{os.urandom(8).hex()}"
    make, _, token, shown = parts(gi.share(numbers()))
    kind = socket.AF_UNIX, socket.SOCK_SEQPACKET
    with socket.socket(*kind) as listener, socket.socket(*kind) as first:
        listener.bind(f"\0{address}")
        listener.listen(0)
        first.connect(f"\0{address}")
        yield make(address, token, shown), listener


def test_an_opener_does_not_wait_for_ever_for_a_busy_owner(busy, monkeypatch):
    monkeypatch.setattr(service, "_SECONDS", 0.1)
    with pytest.raises(gi.ExchangeError, match="none within"):
        busy[0].open()


def test_an_opener_waits_for_a_busy_owner(busy, monkeypatch):
    handle, listener = busy

    def accept_both(_):
        monkeypatch.undo()
        for _ in range(2):  # the second is the opener, after it has tried again
            threading.Thread(target=lambda: listener.accept()[0].close()).start()

    monkeypatch.setattr(service.time, "sleep", accept_both)
    with pytest.raises(gi.ExchangeError, match="ended"):
        handle.open()


def test_an_owner_that_ends_before_the_token_is_reported(busy, monkeypatch):
    handle, listener = busy
    listener.accept()[0].close()
    peer_user = service.peer_user

    def end_the_owner(connection):
        listener.accept()[0].close()
        return peer_user(connection)

    monkeypatch.setattr(service, "peer_user", end_the_owner)
    with pytest.raises(gi.ExchangeError, match="ended"):
        handle.open()


def test_the_user_of_a_process_is_its_effective_one(opener, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: -1)
    assert opener.run(gi.share(numbers()), "r = h.open().size") == "24"


def test_another_user_is_neither_answered_nor_believed(monkeypatch):
    """As the tests that act as another user, but where only the word of the kernel is replaced."""
    handle = gi.share(numbers())
    make, address, token, shown = parts(handle)
    monkeypatch.setattr(service, "peer_user", lambda connection: os.geteuid() + 1)
    kind = socket.AF_UNIX, socket.SOCK_SEQPACKET
    with socket.socket(*kind) as connection:
        connection.settimeout(10)
        connection.connect(f"\0{address}")
        try:
            connection.send(token)
            answer = connection.recv(1 << 16)
        except ConnectionError:
            answer = b""
        assert answer == b""
        assert handle.openers == 0
    false = f"gpuinterop-{os.getpid()}-{os.urandom(8).hex()}"
    with socket.socket(*kind) as listener:
        listener.bind(f"\0{false}")
        listener.listen()
        with pytest.raises(gi.ExchangeError, match="another user"):
            make(false, token, shown).open()
        with listener.accept()[0] as connection:
            assert connection.recv(64) == b""  # it never receives the token


# ---- the opener's mappings --------------------------------------------------------------------------


def test_allocations_of_two_owners_are_never_confused(monkeypatch):
    class Memory:
        pass

    monkeypatch.setattr(opened.device_memory, "open_memory", lambda *_: Memory())
    answer = {"mechanism": "pool", "handle": "00", "number": 1}
    first, again, other = (opened._map_allocation(owner, answer, 0, []) for owner in "aab")
    assert first is again
    assert first is not other


def test_a_failure_of_the_gpu_still_ends_the_lease(monkeypatch):
    def fails(index):
        raise RuntimeError("the GPU has failed")

    monkeypatch.setattr(opened.device_memory, "finish", fails)
    with socket.socket() as lease:
        opened._ended.append((opened.device_memory.DeviceMapping(0, 8), lease))
        with pytest.raises(RuntimeError):
            opened._release()
        assert lease.fileno() == -1
