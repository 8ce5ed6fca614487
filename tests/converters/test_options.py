"""Options and names: boolean options take only bools, and unknown names get a suggestion."""

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import converters

X = np.ones(3, np.float32)

# ---- copy and copyif -----------------------------------------------------------------------------

KEYWORDS = {
    "asarray": (gi.asarray, "copy"),
    "from_dlpack": (gi.from_dlpack, "copy"),
    "to": (lambda x, **options: gi.to(x, "numpy", **options), "copyif"),
    "explain": (lambda x, **options: gi.explain(x, "numpy", **options), "copyif"),
    "from_any": (converters.from_any, "copyif"),
    "from_numpy": (converters.from_numpy, "copyif"),
    "to_numpy": (lambda x, **options: converters.to_numpy(gi.from_any(x), **options), "copyif"),
    "pointer_arguments": (
        lambda x, **options: converters.pointer_arguments([], **options),
        "copyif",
    ),
    "reshape": (lambda x, **options: gi.from_any(x).reshape(3, **options), "copy"),
    "to_device": (lambda x, **options: gi.from_any(x).to_device("cpu", **options), "copy"),
    "to_cudandarray": (gi.to_cudandarray, "copyif"),
    "kernel": (lambda x, **options: converters.cupy.kernel(len, **options), "copyif"),
}


@pytest.mark.parametrize("value", [True, False, None])
@pytest.mark.parametrize("name", KEYWORDS)
def test_other_copy_keyword_is_refused_with_the_right_one(name, value):
    call, accepted = KEYWORDS[name]
    other = "copyif" if accepted == "copy" else "copy"
    with pytest.raises(
        gi.ArgumentTypeError, match=rf"^{name}\b.*: expected {accepted}= "
    ) as caught:
        call(X, **{other: value})
    assert caught.value.got == f"{other}={value}"
    assert f"{accepted}=True" in caught.value.fix
    call(X, **{accepted: True})


# ---- bools --------------------------------------------------------------------------------------


def make_array():
    return gi.from_any(np.zeros((2, 3), np.float32))


def host():
    return np.zeros((2, 3), np.float32)


CALLS = {
    "to": lambda v: gi.to(make_array()[:, ::-1], "numpy", v),
    "to, shared": lambda v: gi.to(make_array(), "buffer", copyif=v),
    "to_numpy": lambda v: converters.to_numpy(make_array(), v),
    "from_any": lambda v: gi.from_any(host(), v),
    "explain": lambda v: gi.explain(make_array(), "numpy", v),
    "allow_readonly": lambda v: gi.explain(make_array(), "torch", allow_readonly=v),
    "from_jax": lambda v: converters.from_jax(pytest.importorskip("jax.numpy").ones(2), v),
    "to_device": lambda v: make_array().to_device("cpu", copy=v),
    "astype": lambda v: make_array().astype("float32", copy=v),
    "reshape": lambda v: make_array().reshape(6, copy=v),
    "from_dlpack": lambda v: gi.from_dlpack(host(), copy=v),
    "asarray": lambda v: gi.asarray(host(), device="cpu", copy=v),
    "pointer_arguments": lambda v: converters.pointer_arguments([], copyif=v).__enter__(),
    "pointer_arguments, readonly": lambda v: converters.pointer_arguments(
        [], allow_readonly=v
    ).__enter__(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("value", ["no", 1, np.ones(2)])
def test_option_that_is_no_bool_is_refused(call, value):
    with pytest.raises(gi.errors.ArgumentTypeError, match="True"):
        CALLS[call](value)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("value", [True, np.True_, np.False_])
def test_bools_of_numpy_are_bools(call, value):
    try:
        CALLS[call](value)
    except gi.ContiguityError:
        assert not value


# ---- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["allow_copy", "Copyif", "copfi"])
@pytest.mark.parametrize("call", [gi.to, gi.explain])
def test_misspelt_copyif_is_answered_with_copyif(call, word):
    pytest.importorskip("torch")
    with pytest.raises(gi.ArgumentTypeError) as raised:
        call(X, "torch", **{word: True})
    assert "copyif" in raised.value.fix
    assert "allow_readonly" not in raised.value.fix


@pytest.mark.parametrize(
    "library",
    ["numpy", "torch", "jax", "tvm_ffi", "buffer", "array_api_strict", "gpuinterop", "cudandarray"],
)
def test_every_library_takes_allow_readonly(library):
    if library not in ("numpy", "buffer", "gpuinterop", "cudandarray"):
        pytest.importorskip(library)
    x = gi.zeros(16, device="cpu")
    x.readonly = True
    for source in (x, host()):
        assert not gi.explain(source, library, True, allow_readonly=True).refused
        assert gi.to(source, library, True, allow_readonly=True) is not None
        for call in (gi.to, gi.explain):
            with pytest.raises(gi.ArgumentTypeError, match="allow_readonly=True or False"):
                call(source, library, True, allow_readonly="yes")
    assert gi.shares_memory(gi.to(x, library, allow_readonly=True), x)


@pytest.mark.parametrize("call", [gi.to, gi.explain])
def test_module_or_class_is_answered_with_the_name_of_its_library(call):
    given = [
        (np, "numpy"),
        (np.ndarray, "numpy"),
        ("PyTorsh", "torch"),
        ("cudandaray", "cudandarray"),
    ]
    torch = pytest.importorskip("torch")
    given += [(torch, "torch"), (torch.Tensor, "torch"), (torch.nn, "torch")]
    for library, name in given:
        with pytest.raises(gi.ConversionTypeError) as raised:
            call(X, library)
        assert raised.value.fix == f"pass {name!r}"
