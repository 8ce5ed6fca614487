"""copyif, copy and allow_readonly take True and False: whatever else is true does not mean a copy."""

from __future__ import annotations

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import converters


def ours():
    return gi.from_any(np.zeros((2, 3), np.float32))


def host():
    return np.zeros((2, 3), np.float32)


CALLS = {
    "to": lambda v: gi.to(ours()[:, ::-1], "numpy", v),
    "to, shared": lambda v: gi.to(ours(), "buffer", copyif=v),
    "to_buffer": lambda v: converters.to_buffer(ours().T, v),
    "to_numpy": lambda v: converters.to_numpy(ours(), v),
    "from_any": lambda v: gi.from_any(host(), v),
    "from_numpy": lambda v: converters.from_numpy(host(), v),
    "explain": lambda v: gi.explain(ours(), "numpy", v),
    "allow_readonly": lambda v: gi.explain(ours(), "torch", allow_readonly=v),
    "from_jax": lambda v: converters.from_jax(pytest.importorskip("jax.numpy").ones(2), v),
    "to_jax": lambda v: pytest.importorskip("jax") and converters.to_jax(ours(), v),
    "from_tvm_ffi": lambda v: converters.from_tvm_ffi(
        pytest.importorskip("tvm_ffi").from_dlpack(host()), v
    ),
    "from_array_api": lambda v: converters.from_array_api(
        pytest.importorskip("array_api_strict").ones(2), v
    ),
    "to_device": lambda v: ours().to_device("cpu", copy=v),
    "astype": lambda v: ours().astype("float32", copy=v),
    "reshape": lambda v: ours().reshape(6, copy=v),
    "from_dlpack": lambda v: gi.from_dlpack(host(), copy=v),
    "asarray": lambda v: gi.asarray(host(), device="cpu", copy=v),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("value", ["cpu", "no", 1, 0, np.ones(2), ()])
def test_what_is_no_bool_is_refused(call, value):
    with pytest.raises(gi.errors.ArgumentTypeError, match="True") as raised:
        CALLS[call](value)
    assert raised.value.fix


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("value", [True, np.True_, np.False_])
def test_bools_of_numpy_are_bools(call, value):
    try:
        CALLS[call](value)
    except gi.ContiguityError:
        assert not value


def test_jax_asks_the_same_of_its_quick_way():
    pytest.importorskip("jax")
    x = gi.zeros(4, device="cpu")
    for _ in range(2):  # before JAX is known to be complete, and after
        with pytest.raises(gi.errors.ArgumentTypeError, match="copyif=True or False"):
            converters.to_jax(x, [])
        converters.to_jax(x)


def test_numpys_false_forbids_a_copy():
    x = ours()[:, ::2]
    for no in (False, np.False_):
        with pytest.raises(gi.CopyForbiddenError):
            x.reshape(4, copy=no)
        with pytest.raises(gi.CopyForbiddenError):
            gi.asarray(np.zeros(3, ">f4"), device="cpu", copy=no)
    assert x.astype("float32", copy=np.False_) is x
