"""A producer that is still running on a side stream is always seen complete, in both directions."""

import os

import numpy as np
import pytest

import gpuinterop as gi

pytestmark = pytest.mark.gpu

BATCH = 500  # rounds between two checks of the results: each check waits for the GPU
ROUNDS = int(os.environ.get("GPUINTEROP_ORDER_ROUNDS", "10000"))
rounds_of_each = pytest.mark.parametrize(
    "rounds", [BATCH, pytest.param(ROUNDS, marks=pytest.mark.slow)]
)
SHAPE = (64, 64)
SLEEP = 40_000  # clock cycles, about 20 us: longer than a hand-over and the consumer's launch


class Torch:
    """Side streams of torch; its own side of each hand-over."""

    def __init__(self) -> None:
        self.lib = pytest.importorskip("torch")
        self.stream = self.lib.cuda.Stream()

    def sleep_on(self, handle: int) -> None:
        with self.lib.cuda.stream(self.lib.cuda.ExternalStream(handle)):
            self.lib.cuda._sleep(SLEEP)

    def produce(self, value: float, into):
        with self.lib.cuda.stream(self.stream):
            self.lib.cuda._sleep(SLEEP)
            into.fill_(value)

    def empty(self):
        return self.lib.zeros(SHAPE, device="cuda")

    def entered(self):
        return self.lib.cuda.stream(self.stream)

    def consume(self, x):
        """A copy made on this library's side stream of what it sees in our array."""
        with self.lib.cuda.stream(self.stream):
            return self.lib.from_dlpack(x).clone()

    def first(self, copies) -> list[float]:
        with self.lib.cuda.stream(self.stream):
            stacked = self.lib.stack(copies)
            ends = self.lib.stack([stacked.amin(dim=(1, 2)), stacked.amax(dim=(1, 2))])
            return ends.cpu().tolist()


class Cupy(Torch):
    """CuPy's side streams; torch only sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.cupy = pytest.importorskip("cupy")
        self.side = self.cupy.cuda.Stream(non_blocking=True)

    def produce(self, value: float, into):
        self.sleep_on(self.side.ptr)
        with self.side:
            into.fill(value)

    def empty(self):
        return self.cupy.zeros(SHAPE, dtype="float32")

    def entered(self):
        return self.side

    def consume(self, x):
        with self.side:
            return self.cupy.from_dlpack(x).copy()

    def first(self, copies) -> list[float]:
        with self.side:
            stacked = self.cupy.stack(copies)
            ends = self.cupy.stack([stacked.min(axis=(1, 2)), stacked.max(axis=(1, 2))])
            return ends.get().tolist()


class CupyDict(Cupy):
    """The same over the CUDA Array Interface, which carries its stream in the dictionary."""

    def consume(self, x):
        with self.side:
            return self.cupy.asarray(x).copy()


PEERS = [Torch, Cupy, CupyDict]


class Numba(Torch):
    """Numba reads on its default stream, and waits for that one alone."""

    def __init__(self) -> None:
        super().__init__()
        pytest.importorskip("numba.cuda")

    def consume(self, x):
        return gi.to(x, "numba").copy_to_host()

    def first(self, copies) -> list[float]:
        stacked = np.stack(copies)
        return [stacked.min(axis=(1, 2)).tolist(), stacked.max(axis=(1, 2)).tolist()]


class PyCuda(Numba):
    """PyCUDA likewise."""

    def __init__(self) -> None:
        Torch.__init__(self)
        pytest.importorskip("pycuda")
        gi.converters.pycuda.init()

    def consume(self, x):
        return gi.to(x, "pycuda").get()


def jax_on_gpu():
    jax = pytest.importorskip("jax")
    found = [device for device in jax.devices() if device.platform == "gpu"]
    if not found:
        pytest.skip("jax has no GPU")
    return jax, found[0]


class Jax(Numba):
    """JAX reads when it computes, on its own stream, after its array has been released."""

    def __init__(self) -> None:
        Torch.__init__(self)
        self.copy = jax_on_gpu()[0].jit(lambda a: a + 0)

    def consume(self, x):
        return self.copy(gi.to(x, "jax"))


class Lent(Torch):
    """torch writes to memory of gpuinterop."""

    def empty(self):
        return gi.to(gi.zeros(SHAPE, device="cuda"), "torch")


READERS = [*PEERS, Numba, PyCuda, Jax]


@rounds_of_each
@pytest.mark.parametrize("peer", [*PEERS, Lent])
@pytest.mark.parametrize("stream_kind", ["side", "legacy"])
def test_import_waits_for_a_slow_producer(peer, stream_kind, rounds):
    them = peer()
    stream = gi.Stream("cuda") if stream_kind == "side" else gi.devices.legacy_stream()
    source = them.empty()
    for start in range(0, rounds, BATCH):
        values = np.arange(start + 1, start + BATCH + 1, dtype="float32")
        seen = []
        for value in values:
            them.produce(float(value), source)
            with stream, them.entered():
                # A private copy on the gpuinterop stream; the next round overwrites the source.
                view = gi.from_dlpack(source)
                seen.append(view.copy())
                # The other library's next write must also wait for the copy.
                back = gi.devices.as_stream(them_handle(them))
                back.wait(stream)
        got = np.stack([x.get() for x in seen])
        np.testing.assert_array_equal(got.min(axis=(1, 2)), values)
        np.testing.assert_array_equal(got.max(axis=(1, 2)), values)


def them_handle(them) -> int:
    return them.side.ptr if isinstance(them, Cupy) else them.stream.cuda_stream


@rounds_of_each
@pytest.mark.parametrize("peer", READERS)
@pytest.mark.parametrize("stream_kind", ["side", "legacy"])
def test_export_waits_for_slow_work_of_gpuinterop(peer, stream_kind, rounds):
    them = peer()
    stream = gi.Stream("cuda") if stream_kind == "side" else gi.devices.legacy_stream()
    handle = stream.handle if stream_kind == "side" else 0
    for start in range(0, rounds, BATCH):
        values = list(range(start + 1, start + BATCH + 1))
        seen = []
        for value in values:
            with stream:
                x = gi.empty(SHAPE, device="cuda")
                them.sleep_on(handle)
                x[...] = float(value)
            seen.append(them.consume(x))
            # Released while the other library's copy may still run: the memory must not be reused early.
            del x
        low, high = them.first(seen)
        assert low == high == values


def jax_producer(products: int):
    """A function that computes an array full of its argument, slowly, and its second argument."""
    jax, device = jax_on_gpu()
    jnp = jax.numpy
    unit = jax.device_put(np.eye(256, dtype="float32"), device)

    @jax.jit
    def produce(value, unit):
        # A chain of products that stays the unit matrix, and that the result depends on.
        last = jax.lax.fori_loop(0, products, lambda _, chain: chain @ unit, unit)
        return jnp.full(SHAPE, value) * last[0, 0]

    produce(np.float32(0), unit).block_until_ready()  # compiled now
    return produce, unit


@rounds_of_each
@pytest.mark.parametrize("stream_kind", ["side", "legacy"])
def test_jax_is_still_computing(stream_kind, rounds):
    """JAX's work runs on its own streams, which it does not report."""
    produce, unit = jax_producer(8)
    stream = gi.Stream("cuda") if stream_kind == "side" else gi.devices.legacy_stream()
    for start in range(0, rounds, BATCH):
        values = np.arange(start + 1, start + BATCH + 1, dtype="float32")
        with stream:
            seen = [gi.from_any(produce(value, unit)).copy() for value in values]
        got = np.stack([x.get() for x in seen])
        np.testing.assert_array_equal(got.min(axis=(1, 2)), values)
        np.testing.assert_array_equal(got.max(axis=(1, 2)), values)


@pytest.mark.parametrize("stream_kind", ["side", "legacy"])
def test_memory_of_jax_is_not_released_while_it_is_read(stream_kind):
    """Its streams keep no order with the legacy one, and what it gets back it writes to at once."""
    produce, unit = jax_producer(0)
    torch = Torch()
    stream = gi.Stream("cuda") if stream_kind == "side" else gi.devices.legacy_stream()
    for value in range(1, 51):
        with stream:
            x = gi.from_any(produce(np.float32(value), unit))
            torch.sleep_on(stream.handle if stream_kind == "side" else 0)
            copied = x.copy()
            del x
            later = [produce(np.float32(-value), unit) for _ in range(4)]
        got = copied.get()
        assert (got.min(), got.max()) == (value, value)
        del later
