"""Array dictionaries, and torch and jax objects whose memory is not what they show (49 to 63)."""

from __future__ import annotations

import numpy as np
from hostile_table import BOTH, case, take
from peers import ADDRESS, interface

# ---- 49 to 55: dictionaries ------------------------------------------------------------------------

for door in ("__cuda_array_interface__", "__array_interface__"):
    for key in ("shape", "typestr", "version"):
        case(f"49 {door} without {key}", TypeError, key)(
            lambda door=door, key=key: take(interface(door, drop=[key]))
        )
    for bad_data in ((8,), (None, False), (True, False), (-8, False), (2**64, False), ("8", False)):
        case(f"50 {door} data {bad_data!r}", TypeError, "data")(
            lambda door=door, bad_data=bad_data: take(interface(door, data=bad_data))
        )
    case(f"51 {door} version None", TypeError, "version")(
        lambda door=door: take(interface(door, version=None))
    )
    case(f"52 {door} with a mask", NotImplementedError, "mask")(
        lambda door=door: take(interface(door, mask=interface(door)))
    )
    case(f"53 {door} with too few strides", ValueError, "2 strides")(
        lambda door=door: take(interface(door, strides=(4,)))
    )
    case(f"53 {door} with too many strides", ValueError, "2 strides")(
        lambda door=door: take(interface(door, strides=(12, 4, 4)))
    )
    case(f"49 {door} that is no dictionary", TypeError, "dictionary")(
        lambda door=door: take(type("Odd", (), {door: 3})())
    )
    case(f"13 {door} with a negative extent", ValueError, "-2")(
        lambda door=door: take(interface(door, shape=(-2, 3)))
    )
    case(f"14 {door} with extents of 2**70", ValueError, "63 bits")(
        lambda door=door: take(interface(door, shape=(2**70, 3)))
    )
    for typestr in ("f4", "<f", "<x4", "", 4, "<f4x", "<f99999999999999999999"):
        case(f"30 {door} typestr {typestr!r}", TypeError, "typestr")(
            lambda door=door, typestr=typestr: take(interface(door, typestr=typestr))
        )
case("49 CAI without data", TypeError, "data")(lambda: take(interface(drop=["data"])))
case("50 CAI data as an int", TypeError, "data")(lambda: take(interface(data=ADDRESS)))
case("51 version 4 with a new key", ValueError, "version 4")(
    lambda: take(interface(version=4, future=1))
)
case("51 version -1", TypeError, "version")(lambda: take(interface(version=-1)))
case("54 stream 0", ValueError, "stream")(lambda: take(interface(stream=0)))
case("54 a bool as stream", TypeError, "stream")(lambda: take(interface(stream=True)))


class Grudging:
    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad")


case("55 an attribute that raises", BOTH, "requires grad")(lambda: take(Grudging()))

# ---- 56 to 63: torch and jax -----------------------------------------------------------------------


def torch_case(number: str, expected, words):
    def keep(make):
        def run():
            import torch

            take(make(torch))

        case(number, expected, words, "torch")(run)

    return keep


torch_case("56 requires_grad", BufferError, "detach()")(lambda t: t.ones(3, requires_grad=True))
torch_case("56 a parameter", BufferError, "detach()")(lambda t: t.nn.Parameter(t.ones(3)))
torch_case("56 grad_fn", BufferError, "detach()")(lambda t: t.ones(3, requires_grad=True) * 2)
torch_case("57 conj", BufferError, "resolve_conj()")(lambda t: t.ones(3, dtype=t.complex64).conj())
torch_case("57 neg", BufferError, "resolve_neg()")(
    lambda t: t.ones(3, dtype=t.complex64).conj().imag
)
torch_case("57 neg, contiguous", BufferError, "resolve_neg()")(lambda t: t._neg_view(t.ones(3)))
torch_case("58 sparse coo", BufferError, "to_dense()")(lambda t: t.eye(3).to_sparse())
torch_case("58 sparse csr", BufferError, "to_dense()")(lambda t: t.eye(3).to_sparse_csr())
torch_case("58 quantized", BufferError, "dequantize()")(
    lambda t: t.quantize_per_tensor(t.ones(3), 0.1, 0, t.qint8)
)
torch_case("58 mkldnn", BufferError, "to_dense()")(lambda t: t.ones(3).to_mkldnn())
torch_case("59 meta", BOTH, "on meta")(lambda t: t.ones(3, device="meta"))
torch_case("21 a zero tensor without storage", BufferError, "without storage")(
    lambda t: t._efficientzerotensor((3,))
)


@case("59 inside vmap", TypeError, "inside vmap or grad", needs="torch")
def _():
    import torch

    torch.func.vmap(lambda x: take(x) and x)(torch.ones(2, 3))


@case("59 inside grad", TypeError, "inside vmap or grad", needs="torch")
def _():
    import torch

    torch.func.grad(lambda x: (take(x), x.sum())[1])(torch.ones(3))


@case("60 a wrapper subclass", TypeError, "wrapper around other tensors", needs="torch")
def _():
    import torch

    class Wrapper(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            raise AssertionError("not called")

    take(torch.Tensor._make_wrapper_subclass(Wrapper, (3,)))


@case("60 a plain subclass is a tensor", needs="torch")
def _():
    import torch

    class Mine(torch.Tensor):
        pass

    t = torch.ones(3).as_subclass(Mine)
    assert take(t).ptr == t.data_ptr()


@case("61 a jax tracer", TypeError, "inside jit", needs="jax")
def _():
    import jax

    jax.jit(lambda x: take(x) and x)(np.ones(3, "float32"))


@case("62 a deleted jax array", ValueError, "deleted", needs="jax")
def _():
    import jax.numpy as jnp

    x = jnp.ones(3) + 1
    x.delete()
    take(x)


@case("63 a sharded jax array", BufferError, "on 2 devices", needs="jax")
def _():
    import jax

    devices = jax.devices()
    assert len(devices) == 2
    mesh = jax.sharding.Mesh(np.array(devices), ("i",))
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
    take(jax.device_put(np.ones(4, "float32"), place))
