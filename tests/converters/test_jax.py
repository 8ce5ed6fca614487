"""JAX on the host: immutable, aligned to 64 bytes, 32 bits wide unless configured otherwise."""

import gc

import numpy as np
import pytest
from doubles import driver
from helpers.cases import agree, aligned
from helpers.profile import functions_of

import gpuinterop as gi
from gpuinterop import converters

pytestmark = pytest.mark.jax


@pytest.fixture
def jax():
    return pytest.importorskip("jax")


def test_jax_memory_is_read_only_by_every_way_in(jax):
    j = jax.numpy.arange(16, dtype="float32")
    for take in (gi.from_any, gi.from_dlpack, gi.to_cudandarray,
                 lambda obj: gi.asarray(obj, device="cpu")):  # fmt: skip
        x = take(j)
        assert x.ptr == j.unsafe_buffer_pointer(), take
        assert x.readonly, take
        with pytest.raises(gi.ReadOnlyError):
            x[0] = 1
    torch = pytest.importorskip("torch")
    with pytest.raises(gi.ReadOnlyError):
        converters.to_torch(x)
    copied = converters.to_torch(x, copyif=True)
    copied.add_(5)
    assert isinstance(copied, torch.Tensor)
    writable = x.copy()
    writable[0] = 7
    assert j.tolist() == list(range(16))


def test_conversions_of_ordinary_arrays_run_only_jaxs_functions(jax):
    x = gi.full((4, 4), 3, device="cpu")
    h, j = np.from_dlpack(x), jax.numpy.ones((4, 4))
    protocol = functions_of(lambda: (j.__dlpack_device__(), j.__dlpack__()))
    for call in (lambda: converters.from_jax(j), lambda: gi.from_any(j, copyif=True)):
        assert functions_of(call) == protocol
    of_jax = functions_of(lambda: jax.dlpack.from_dlpack(h))
    for call in (lambda: converters.to_jax(x), lambda: gi.to(x, "jax", copyif=True)):
        assert functions_of(call) == ["_export_by_dlpack", *of_jax]


def test_jax_never_narrows(jax):
    for dtype in ("float64", "int64", "uint64", "complex128"):
        x = gi.from_any(aligned(3, dtype))
        for copyif in (False, True):
            with pytest.raises(gi.DTypeError, match="jax_enable_x64"):
                converters.to_jax(x, copyif)
    jax.config.update("jax_enable_x64", True)
    try:
        made = converters.to_jax(gi.from_any(aligned(3, "float64")))
        assert made.dtype == np.float64
    finally:
        jax.config.update("jax_enable_x64", False)


def test_jax_shares_aligned_memory_and_copies_only_with_permission(jax):
    """Whatever the alignment: shared means the same address, and else it is refused or counted."""
    for offset in range(0, 132, 4):
        x = converters.from_numpy(aligned(16, "float32", offset))
        refused, _, error = agree(x, "jax")
        assert refused.shared == (offset % 64 == 0)
        assert error is None or (type(error), error.reason) == (gi.ContiguityError, "alignment")
        plan, j, _ = agree(x, "jax", True)
        j.block_until_ready()
        assert plan.bytes == (0 if refused.shared else 64)
        assert (j.unsafe_buffer_pointer() == x.ptr) == plan.shared
        assert np.array_equal(np.asarray(j), x.get())


def test_jax_memory_with_a_view_is_not_donated(jax):
    add = jax.jit(lambda a: a + 1, donate_argnums=0)
    j = jax.numpy.ones(64)
    x = gi.from_any(j)
    add(j).block_until_ready()
    assert not j.is_deleted()  # XLA donates memory only while no other object refers to it
    assert x.get().tolist() == [1] * 64
    assert gi.from_any(j).ptr == x.ptr
    del x
    gc.collect()
    k = jax.numpy.ones(64)
    add(k).block_until_ready()
    assert k.is_deleted()
    assert gi.explain(k).refused
    with pytest.raises(gi.ExchangeError, match="donates"):
        gi.from_any(k)


def test_several_devices_of_jax():
    """On two host devices, in a process of its own: the number is fixed when JAX starts."""
    pytest.importorskip("jax")
    program = """
import jax, numpy as np, gpuinterop as gi
from jax.sharding import Mesh, NamedSharding, PartitionSpec
one, two = jax.devices()
j = jax.device_put(jax.numpy.arange(32, dtype="float32"), two)
x = gi.from_any(j)
assert x.ptr == j.unsafe_buffer_pointer() and str(x.device) == "cpu" and gi.explain(j).shared
assert gi.shares_memory(x, j)
place = NamedSharding(Mesh(np.array([one, two]), "i"), PartitionSpec("i"))
spread = jax.device_put(j, place)
for copyif in (False, True):
    plan = gi.explain(spread, "torch", copyif)
    assert plan.refused and plan.code == "sharded", plan
    try:
        gi.from_any(spread, copyif)
    except gi.ExportError as e:
        assert e.reason == "sharded" and "addressable_shards" in e.fix
    else:
        raise SystemExit("not refused")
part = gi.from_any(spread.addressable_shards[1].data)
assert part.tolist() == list(range(16, 32))
print("done")
"""
    two = "--xla_force_host_platform_device_count=2"
    run = driver.python("-c", program, XLA_FLAGS=two, JAX_PLATFORMS="cpu")
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr
