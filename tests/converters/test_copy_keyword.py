"""Functions of a protocol take `copy`, all others `copyif`; the error for the other keyword names the right one."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import converters

X = np.ones(3, np.float32)

CALLS = {
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
}


@pytest.mark.parametrize("value", [True, False, None])
@pytest.mark.parametrize("name", CALLS)
def test_other_copy_keyword_is_refused_with_the_right_one(name, value):
    call, accepted = CALLS[name]
    other = "copyif" if accepted == "copy" else "copy"
    with pytest.raises(
        gi.ArgumentTypeError, match=rf"^{name}\b.*: expected {accepted}= "
    ) as caught:
        call(X, **{other: value})
    assert caught.value.got == f"{other}={value}"
    assert f"{accepted}=True" in caught.value.fix
    call(X, **{accepted: True})


@pytest.mark.parametrize("function", [gi.asarray, gi.from_dlpack])
def test_signatures_show_one_keyword(function):
    parameters = inspect.signature(function).parameters
    assert "copy" in parameters
    assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())
