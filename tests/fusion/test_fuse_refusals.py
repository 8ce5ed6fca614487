"""What a function must not do while it is fused, and what a fused function does not take."""

import math
import operator

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop.errors import ArgumentTypeError

Y = gi.zeros(3, device="cpu")


def assigns(x):
    x[0] = 1
    return x


IN_PLACE = "add sub mul truediv floordiv mod pow and or xor lshift rshift matmul".split()


def in_place(name):
    change = getattr(operator, f"i{name}", None) or getattr(operator, f"i{name}_")
    return {f"{name}= {other}": ("out=x", lambda x, b=other: change(x + 0, x if b is None else b))
            for other in (2, None)}  # fmt: skip


# A word of the message, and a function of a vector of 3.
REFUSED = {
    "if": (r"gpuinterop\.where", lambda x: x if x > 0 else -x),
    "if any": ("fuse", lambda x: x if x.any() else -x),
    "reshape": (r"x\.reshape", lambda x: x.reshape(3, 1)),
    "no array": ("returns arrays", lambda x: 3),
    "an assignment": ("assignment to x", assigns),
    **{f"reading by {name}": ("outside|where", read) for name, read in {
        "item": lambda x: x.item(), "tolist": lambda x: x.tolist(), "get": lambda x: x.get(),
        "float": float, "int": int, "complex": complex, "index": range, "bool": bool, "list": list,
        "in": lambda x: 1 in x, "asarray": np.asarray, "format": lambda x: f"{x:.3f}", "round": round,
        "getitem": lambda x: x[0], "sqrt": math.sqrt, "float of a sum": lambda x: float(x.sum()),
        "item of a sum": lambda x: x.sum().item(), "an element of a sum": lambda x: x.sum()[0],
        "a list of a maximum": lambda x: list(x.max(keepdims=True))}.items()},
    **{key: row for name in IN_PLACE for key, row in in_place(name).items()},
    "sum, dtype": ("fuse", lambda x: x.sum(dtype="float64")),
    "sum, initial": ("fuse", lambda x: x.sum(initial=1)),
    "max, where": ("fuse", lambda x: gi.max(x, where=x > 1)),
    "var": ("fuse", lambda x: x.var()),
    **{f"numpy.{name}": (f"call numpy.{name} outside", call) for name, call in {
        "add.accumulate": lambda x: np.add.accumulate(x), "multiply.outer": lambda x: np.multiply.outer(x, x),
        "modf": lambda x: np.modf(x),
        "nextafter": lambda x: np.nextafter(x, 1)}.items()},
    "matmul": ("matmul of shapes .3, 1. and .1, 3.", lambda x: x[:, None] @ x[None]),
    "add.at": ("call add.at outside", lambda x: np.add.at(x, 0, 1)),
    "cumsum": ("cumsum", lambda x: np.cumsum(x)),
    "where= of NumPy": ("select elements", lambda x: np.add(x, x, where=x > 0)),
    "where=": ("select elements", lambda x: gi.add(x, x, where=x > 0)),
    **{f"out= of {name}": ("out= in a fused function|out= with an array inside", call) for name, call in {
        "exp": lambda x: gi.exp(x, out=Y), "numpy.exp": lambda x: np.exp(x, out=Y),
        "exp, the argument": lambda x: gi.exp(x, out=x), "numpy.add": lambda x: np.add(x, x, x),
        "divmod": lambda x: gi.divmod(x, x, out=(x, x)), "numpy.sqrt": lambda x: np.sqrt(x, x),
        "concatenate": lambda x: gi.concatenate([Y, Y], out=x), "take": lambda x: gi.take(Y, [0, 1], out=x),
        "sum": lambda x: Y.sum(out=x), "numpy.sum": lambda x: np.sum(x, out=Y), "dot": lambda x: Y.dot(Y, out=x),
        "a fused function": lambda x: gi.fuse(lambda a: a / 2)(x, out=Y)}.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_function_is_refused(name):
    word, function = REFUSED[name]
    x = gi.GpuArray(
        np.ones(3, np.int32 if name.split("=")[0] in IN_PLACE else np.float32), device="cpu"
    )
    with pytest.raises(ArgumentTypeError, match=word):
        gi.fuse(lambda x: function(x))(x)
    assert x.tolist() == [1, 1, 1]
    assert not Y.get().any()


def test_wrong_arguments():
    x, add = gi.ones(3, device="cpu"), gi.fuse(lambda x, y: x + y)
    for call in (
        lambda: add(x), lambda: add(), lambda: add(x, x, x), lambda: add(x, z=x),
        lambda: add(x, x, where=x), lambda: add(x, [1.0]), lambda: add(x, object()),
        lambda: add(x, {}), lambda: add(x, x, out=3), lambda: add(1, 2), lambda: gi.fuse(lambda: 1)(),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="expected"):
            call()
    with pytest.raises(gi.ShapeError):
        add(x, gi.ones(2, device="cpu"))
    assert add(x, y=x).tolist() == [2, 2, 2]


def product_with(value):
    return lambda x: x * value


def test_a_placeholder_kept_from_another_call_is_refused():
    kept = []
    gi.fuse(lambda x, n: kept.extend((x, n)) or x * n)(Y, 3.0)
    for old in kept:
        for function in (
            product_with(old),
            lambda x, old=old: x * old,
            lambda x, old=old: gi.exp(old) * x,
        ):
            with pytest.raises(ArgumentTypeError, match="kept"):
                gi.fuse(function)(Y)
    with pytest.raises(ArgumentTypeError, match="kept"):
        kept[0].shape  # noqa: B018


def test_torch_functions_inside_are_refused():
    torch = pytest.importorskip("torch")
    x = gi.ones(3, device="cpu")
    for function, fix in (
        (lambda a: torch.exp(a), "call gpuinterop.exp"),
        (
            lambda a: torch.cumsum(a, 0),
            "call torch.cumsum outside the fused function, and pass its result",
        ),
    ):
        with pytest.raises(gi.ArgumentTypeError) as caught:
            gi.fuse(function)(x)
        assert caught.value.fix.startswith(fix)
