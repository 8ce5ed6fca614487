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


CALLS = {
    **{
        name: lambda value, call=call, accepted=accepted: call(X, **{accepted: value})
        for name, (call, accepted) in KEYWORDS.items()
        if name != "kernel"  # whose wrapper reads it at the launch
    },
    "by position": lambda value: gi.to(gi.from_any(X)[::-1], "buffer", value),
    "allow_readonly": lambda value: gi.explain(X, "torch", allow_readonly=value),
    "allow_readonly of to": lambda value: gi.to(X, "numpy", allow_readonly=value),
    "from_jax": lambda value: converters.from_jax(pytest.importorskip("jax.numpy").ones(2), value),
    "astype": lambda value: gi.from_any(X).astype("float32", copy=value),
    "pointer_arguments": lambda value: converters.pointer_arguments([], copyif=value).__enter__(),
    "pointer_arguments, readonly": lambda value: converters.pointer_arguments(
        [], allow_readonly=value
    ).__enter__(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("value", ["no", 1, np.ones(2)])
def test_option_that_is_not_a_bool_is_refused(call, value):
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
    for source in (x, np.zeros((2, 3), np.float32)):
        assert not gi.explain(source, library, True, allow_readonly=True).refused
        assert gi.to(source, library, True, allow_readonly=True) is not None
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
