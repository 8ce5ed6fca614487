"""Collectives over a communicator of nccl4py, on the fake driver; nccl4py itself where it is installed."""

import importlib
import inspect
import time

import every_layout
import numpy as np
import pytest
from doubles import driver, fake_nccl
from helpers.threads import in_threads

import gpuinterop as gi
from gpuinterop import collectives

pytestmark = pytest.mark.fake_driver


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_every_layout_over_nccl(dtype):
    ranks = fake_nccl.communicators(2)
    results = in_threads(lambda c: every_layout.main(c, c.rank, 2, "cuda:0", [dtype]), ranks)
    assert results == [([], 208)] * 2
    assert in_threads(lambda c: every_layout.in_place(c, 2, "cuda:0"), ranks) == [[], []]


@pytest.fixture
def cut(monkeypatch):
    """The module that cuts long messages, and now every message."""
    parts = importlib.import_module("gpuinterop.collectives.parts")
    monkeypatch.setattr(parts, "FURTHER", 1)
    return parts


@pytest.mark.parametrize("shape", [(6, 5), (2, 11), (3, 7, 5)])
def test_every_layout_in_parts(cut, monkeypatch, shape):
    """Rows longer than a part, parts that end within rows, and collectives that are not cut."""
    monkeypatch.setattr(every_layout, "SHAPE", shape)
    test_every_layout_over_nccl("float32")


def test_the_parts_of_a_view_hold_its_elements_in_order(cut):
    shape = (3, 4, 1, 5)
    x = gi.arange(60, dtype="int64", device="cpu").reshape(shape[::-1]).T
    flat = np.arange(60).reshape(shape[::-1]).T.reshape(-1).tolist()
    for first in range(60):
        for last in range(first + 1, 61):
            views = [*cut.views(x, first, last)]
            found = [value for view in views for value in view.get().reshape(-1).tolist()]
            assert found == flat[first:last]
            assert len(views) <= 5


@pytest.mark.parametrize(
    ("mebibytes", "number"),
    [(1, 1), (63, 1), (64, 2), (127, 2), (128, 3), (192, 4), (256, 4), (16384, 4)],
)
@pytest.mark.parametrize("itemsize", [1, 4, 8])
def test_a_message_has_one_further_part_for_each_64_mebibytes(mebibytes, number, itemsize):
    parts = importlib.import_module("gpuinterop.collectives.parts")
    count = (mebibytes << 20) // itemsize + 7
    ranges = parts.ranges(count, count * itemsize)
    assert [first for first, _ in ranges] == [0, *(last for _, last in ranges[:-1])]
    assert (ranges[-1][1], len(ranges)) == (count, number)


def test_the_further_parts_cost_a_contiguous_message_little_and_spare_a_view_more():
    """7 us for a call of NCCL beside the time over NVLink at 400 GB/s, and beside packing at 2 TB/s."""
    parts = importlib.import_module("gpuinterop.collectives.parts")
    assert parts.ranges(0, 0) == []
    for nbytes in range(1 << 20, 1 << 30, 1 << 20):
        found = parts.ranges(nbytes, nbytes)
        cost, transfer, packing = 7 * (len(found) - 1), nbytes / 400e3, nbytes / 2e6
        first, last = (end - start for start, end in (found[0], found[-1]))
        assert cost <= 0.045 * transfer
        assert cost <= 0.5 * (packing - first / 2e6)
        assert cost <= 0.5 * (packing - last / 2e6)


def test_both_sides_cut_alike_whatever_their_layouts_and_shapes(alone, monkeypatch):
    counted = []
    monkeypatch.setattr(
        fake_nccl.Communicator, "send", lambda c, part, peer, stream: counted.append(part.nbytes)
    )
    shapes, found = [(64, 1 << 20), (1 << 10, 1 << 16), (1 << 26,)], []
    for shape in shapes:
        whole = gi.empty((*shape[:-1], 2 * shape[-1]), dtype="uint8", device="cuda")
        for x in (whole[..., ::2], gi.empty(shape, dtype="uint8", device="cuda")):
            collectives.send(x, 0, group=alone)
            found.append([*counted])
            counted.clear()
    assert found == [[32 << 20, 32 << 20]] * 6


@pytest.fixture
def alone():
    return fake_nccl.communicators(1)[0]


def test_the_transfer_follows_work_on_other_streams(alone):
    first, second = gi.Stream("cuda"), gi.Stream("cuda")
    x, out = gi.zeros(1000, device="cuda"), gi.zeros((1, 1000), device="cuda")
    gi.synchronize("cuda")
    with first:
        driver.slow(first.handle)
        x.fill(5)
    with second:
        collectives.all_gather(x, out, group=alone)
    assert set(out[0].tolist()) == {5.0}


def test_packing_is_counted_and_forbidden(alone):
    x, out = gi.zeros((3, 4), device="cuda"), gi.zeros((1, 4, 3), device="cuda")
    with gi.count_copies() as counted:
        collectives.all_gather(x.T, out, group=alone)
    assert (counted.count, counted.bytes) == (1, 48)
    with gi.no_copies(), pytest.raises(gi.CopyForbiddenError):
        collectives.all_gather(x.T, out, group=alone)
    with gi.no_copies():
        collectives.all_gather(x, out.reshape(1, 3, 4), group=alone)


def test_parts_are_counted_as_one_copy_and_forbidden(alone, cut):
    x = gi.zeros((30, 40), device="cuda")
    with gi.count_copies() as counted:
        collectives.all_reduce(x.T, group=alone)
    assert (counted.count, counted.bytes) == (1, 4800)
    with gi.no_copies():
        collectives.all_reduce(x, group=alone)
        with pytest.raises(gi.CopyForbiddenError):
            collectives.all_reduce(x.T, group=alone)


@pytest.fixture
def stream():
    """The current stream, which is not ordered with the legacy one."""
    with gi.Stream("cuda") as stream:
        yield stream


def soon(address, values):
    """Whether device memory has these values within some seconds, seen from a stream of its own."""
    beside, end = driver.new_stream(), time.monotonic() + 20
    while time.monotonic() < end:
        if np.array_equal(driver.read(address, values.size, beside, dtype=values.dtype), values):
            return True
        time.sleep(0.01)
    return False


HOST = np.arange(1200, dtype="float32").reshape(30, 40) + 1


def test_parts_are_packed_while_the_first_one_is_sent(alone, cut, stream, monkeypatch):
    x, sent, gates = gi.GpuArray(HOST, device="cuda"), [], []

    def send(self, sendbuf, peer, *, stream=None):
        sent.append(sendbuf)
        gates.append(driver.Gate(stream))

    monkeypatch.setattr(fake_nccl.Communicator, "send", send)
    collectives.send(x.T, 0, group=alone)
    try:
        for part, (first, last) in zip(sent, cut.ranges(1200, 4800), strict=True):
            assert soon(part.ptr, HOST.T.reshape(-1)[first:last])
        assert not driver.is_done(stream.handle)
    finally:
        for gate in gates:
            gate.open()


def test_the_first_part_is_sent_while_the_next_one_is_packed(alone, cut, stream, monkeypatch):
    x, arrived, gates = gi.GpuArray(HOST, device="cuda"), driver.allocate(4800), []
    packed, pack = [], cut.Part.pack

    def slowly(part):
        if packed:
            gates.append(driver.Gate(part.stream.handle))
        packed.append(part)
        pack(part)

    def send(self, sendbuf, peer, *, stream=None):
        driver.copy(arrived, sendbuf.ptr, sendbuf.nbytes, stream)

    monkeypatch.setattr(cut.Part, "pack", slowly)
    monkeypatch.setattr(fake_nccl.Communicator, "send", send)
    collectives.send(x.T, 0, group=alone)
    try:
        assert soon(arrived, HOST.T.reshape(-1)[: cut.ranges(1200, 4800)[0][1]])
        assert not driver.is_done(stream.handle)
    finally:
        for gate in gates:
            gate.open()


def test_the_first_part_is_unpacked_while_the_next_one_arrives(alone, cut, stream, monkeypatch):
    out, gates = gi.zeros((30, 40), device="cuda"), []
    ranges = iter(cut.ranges(1200, 4800))

    def recv(self, recvbuf, peer, *, stream=None):
        first, last = next(ranges)
        if first:
            gates.append(driver.Gate(stream))
        fake_nccl.Flat(recvbuf.view("float32"), stream).write(HOST.reshape(-1)[first:last])

    monkeypatch.setattr(fake_nccl.Communicator, "recv", recv)
    collectives.recv(out[::-1, ::-1], 0, group=alone)
    try:
        part = HOST.reshape(-1)[: cut.ranges(1200, 4800)[0][1]]
        assert soon(out.ptr + out.nbytes - part.nbytes, part[::-1])
        assert not driver.is_done(stream.handle)
    finally:
        for gate in gates:
            gate.open()
    assert out.tolist() == HOST[::-1, ::-1].tolist()  # later work on the stream follows


def test_the_next_parts_arrive_while_the_first_one_is_unpacked(alone, cut, stream, monkeypatch):
    out, arrived, gates, unpack = gi.zeros((30, 40), device="cuda"), [], [], cut.Part.unpack
    ranges = cut.ranges(1200, 4800)

    def slowly(part):
        gates.append(driver.Gate(part.stream.handle))
        unpack(part)

    def recv(self, recvbuf, peer, *, stream=None):
        first, last = ranges[len(arrived)]
        arrived.append(recvbuf)
        fake_nccl.Flat(recvbuf.view("float32"), stream).write(HOST.reshape(-1)[first:last])

    monkeypatch.setattr(cut.Part, "unpack", slowly)
    monkeypatch.setattr(fake_nccl.Communicator, "recv", recv)
    collectives.recv(out[::-1, ::-1], 0, group=alone)
    try:
        for part, (first, last) in zip(arrived, ranges, strict=True):
            assert soon(part.ptr, HOST.reshape(-1)[first:last])
        assert soon(out.ptr, np.zeros(1200, "float32"))
        assert not driver.is_done(stream.handle)
    finally:
        for gate in gates:
            gate.open()
    assert out.tolist() == HOST[::-1, ::-1].tolist()


def test_later_work_of_any_library_on_the_stream_follows_the_parts(alone, cut, stream, monkeypatch):
    out, unpack = gi.zeros((30, 40), device="cuda"), cut.Part.unpack
    ranges = iter(cut.ranges(1200, 4800))

    def slowly(part):
        driver.slow(part.stream.handle)
        unpack(part)

    def recv(self, recvbuf, peer, *, stream=None):
        values = HOST.reshape(-1)[slice(*next(ranges))]
        fake_nccl.Flat(recvbuf.view("float32"), stream).write(values)

    monkeypatch.setattr(cut.Part, "unpack", slowly)
    monkeypatch.setattr(fake_nccl.Communicator, "recv", recv)
    collectives.recv(out[::-1, ::-1], 0, group=alone)
    found = driver.read(out.ptr, 1200, stream.handle)
    assert found.tolist() == HOST.reshape(-1)[::-1].tolist()


def test_a_capture_records_the_streams_of_the_parts(alone, cut, monkeypatch):
    far, moved = driver.allocate(4800), []

    def there(buffer):
        moved.append(buffer.nbytes)
        return far + sum(moved[:-1]) % 4800

    def send(self, sendbuf, peer, *, stream=None):
        driver.copy(there(sendbuf), sendbuf.ptr, sendbuf.nbytes, stream)

    def recv(self, recvbuf, peer, *, stream=None):
        driver.copy(recvbuf.ptr, there(recvbuf), recvbuf.nbytes, stream)

    monkeypatch.setattr(fake_nccl.Communicator, "send", send)
    monkeypatch.setattr(fake_nccl.Communicator, "recv", recv)
    x, out = gi.GpuArray(HOST, device="cuda"), gi.zeros((30, 40), device="cuda")
    with gi.capture() as graph:
        collectives.send(x.T, 0, group=alone)
        collectives.recv(out.T, 0, group=alone)
    assert len(moved) == 8
    for values in (HOST, 2 * HOST):
        x[...] = values
        graph.replay()
        assert out.tolist() == values.tolist()


def test_an_array_elsewhere_is_refused(alone):
    with pytest.raises(gi.DeviceMismatchError, match="communicator"):
        collectives.all_reduce(gi.zeros(2, device="cpu"), group=alone)


def test_an_error_of_nccl_is_worded(alone, monkeypatch):
    def fails(*arguments, **options):
        raise RuntimeError("unhandled system error")

    monkeypatch.setattr(fake_nccl.Communicator, "allreduce", fails)
    with pytest.raises(gi.ExchangeError, match="unhandled system error"):
        collectives.all_reduce(gi.zeros(2, device="cuda"), group=alone)
    with pytest.raises(gi.DTypeError):
        collectives.all_reduce(gi.zeros(2, "complex64", device="cuda"), group=alone)


METHODS = "send recv broadcast allreduce reduce_scatter allgather gather scatter alltoall".split()


def test_the_double_has_the_signatures_of_nccl4py():
    real = pytest.importorskip("nccl.core").Communicator
    for name in METHODS:
        wanted, found = (
            inspect.signature(getattr(c, name)) for c in (real, fake_nccl.Communicator)
        )
        assert [(p.name, p.kind, p.default) for p in wanted.parameters.values()] == [
            (p.name, p.kind, p.default) for p in found.parameters.values()
        ], name


def test_nccl4py_reads_what_it_is_given():
    buffers = pytest.importorskip("nccl.core.buffer")
    x = gi.zeros((3, 4), device="cuda")
    x.readonly = True
    own = importlib.import_module("gpuinterop.collectives.nccl")
    read = buffers.NcclBuffer(own._bytes(x))
    assert (read.ptr, read.count, read.dtype.name, read.device_id) == (x.ptr, 48, "UINT8", 0)
