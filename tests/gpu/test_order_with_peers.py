"""Many slow producers in a row: each is seen complete, and no memory is used again while another library reads it.

The compatibility suite tries the order with each library a few times, in both directions.
"""

import os
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from doubles import internals

import gpuinterop as gi

pytestmark = pytest.mark.gpu

BATCH = 500  # rounds between two checks of the results: each check waits for the GPU
ROUNDS = int(os.environ.get("GPUINTEROP_ORDER_ROUNDS", "10000"))
SHAPE = (64, 64)
PAUSE = 20  # microseconds: longer than a hand-over and the consumer's launch


@pytest.fixture(params=[BATCH, pytest.param(ROUNDS, marks=pytest.mark.slow)])
def batches(request):
    starts = range(1, request.param, BATCH)
    return [np.arange(start, start + BATCH, dtype="float32") for start in starts]


@pytest.fixture(params=["side", "legacy"])
def stream(request):
    return gi.Stream("cuda") if request.param == "side" else gi.devices.legacy_stream()


def jax_on_gpu():
    jax = pytest.importorskip("jax")
    found = [device for device in jax.devices() if device.platform == "gpu"]
    if not found:
        pytest.skip("jax has no GPU")
    return jax, found[0]


def lent(flat, layout, device):
    """Memory of gpuinterop that PyTorch writes to."""
    return gi.to(gi.array(flat, device=device).reshape(layout.shape), "torch")


@pytest.mark.parametrize("library", ["torch", "cupy", "lent"])
def test_import_waits_for_a_slow_producer(library, batches, monkeypatch):
    pytest.importorskip("cupy" if library == "cupy" else "torch")
    bridge = internals.bridge("cupy" if library == "cupy" else "torch")
    if library == "lent":
        bridge = replace(bridge, make=lent)
    internals.pause_for(monkeypatch, PAUSE)
    for _ in np.concatenate(batches)[::3]:  # each three times
        cell = internals.run_order(bridge, "from")
        assert (cell.outcome, cell.faults) == ("shared", [])


@pytest.mark.parametrize("library", ["torch", "cupy", "jax"])
def test_export_waits_for_slow_work_of_gpuinterop(library, stream, batches):
    if library == "jax":
        copy = jax_on_gpu()[0].jit(lambda a: a + 0)  # later, on its own stream
    else:
        pytest.importorskip(library)
        copy = {"torch": lambda t: t.clone(), "cupy": lambda c: c.copy()}[library]
    bridge = internals.bridge(library)
    for values in batches:
        seen = []
        with bridge.stream("cuda:0") if bridge.stream else nullcontext():
            for value in values:
                with stream:
                    x = gi.empty(SHAPE, device="cuda")
                    internals.slow(stream.handle, 0, PAUSE)
                    x[...] = value
                seen.append(copy(gi.to(x, library)))
                # Released while the other library's copy may still run: the memory must not be reused early.
                del x
            got = read([bridge.values(copied) for copied in seen])  # on the stream of the copies
        expected = np.broadcast_to(values[:, None, None], (BATCH, *SHAPE))
        np.testing.assert_array_equal(got, expected)


def read(arrays):
    return np.stack([np.asarray(a).view("float32") for a in arrays])


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


def test_jax_is_still_computing(stream, batches):
    """JAX's work runs on its own streams, which it does not report."""
    produce, unit = jax_producer(8)
    for values in batches:
        with stream:
            seen = [gi.from_any(produce(value, unit)).copy() for value in values]
        expected = np.broadcast_to(values[:, None, None], (BATCH, *SHAPE))
        np.testing.assert_array_equal(read([x.get() for x in seen]), expected)


def test_memory_of_jax_is_not_released_while_it_is_read(stream):
    """Its streams keep no order with the legacy one, and what it gets back it writes to at once."""
    produce, unit = jax_producer(0)
    for value in range(1, 51):
        with stream:
            x = gi.from_any(produce(np.float32(value), unit))
            internals.slow(stream.handle, 0)
            copied = x.copy()
            del x
            later = [produce(np.float32(-value), unit) for _ in range(4)]
        np.testing.assert_array_equal(copied.get(), np.full(SHAPE, value))
        del later
