"""What converters of other packages must return: anything else is told, with the converter's name."""

from __future__ import annotations

import types

import numpy as np
import pytest

import gpuinterop as gi
from gpuinterop import converters
from gpuinterop.converters.plan import ArrayInfo, Plan, share


class ToyArray:
    def __init__(self, host):
        self.host = host


def registered(**functions):
    module = types.ModuleType("toy_converter")
    module.matches = lambda obj: isinstance(obj, ToyArray)
    module.to_toy = lambda x, copyif=False: ToyArray(gi.to(x, "numpy", copyif))
    module.from_toy = lambda obj, copyif=False: gi.from_any(obj.host, copyif)
    for name, function in functions.items():
        setattr(module, name, function)
    converters.register(converters.Backend("toy", "toy", converter=module))


def toy():
    return ToyArray(np.arange(3, dtype=np.float32))


def ours():
    return gi.zeros(3, device="cpu")


@pytest.mark.parametrize(
    ("made", "got"),
    [(None, "None"), (np.ones(3), "an object of type numpy.ndarray"),
     ("x", "an object of type builtins.str"), ("itself", "ToyArray")],
    ids=["none", "numpy", "text", "itself"],
)  # fmt: skip
def test_a_from_that_makes_no_array_of_ours(clean, made, got):
    registered(
        from_toy=lambda obj, copyif=False: (
            obj if isinstance(made, str) and made == "itself" else made
        )
    )
    for ask in (
        gi.from_any,
        gi.asarray,
        lambda obj: gi.to(obj, "numpy"),
        lambda obj: gi.shares_memory(obj, obj),
    ):
        with pytest.raises(gi.ConversionTypeError, match="converter of 'toy'") as raised:
            ask(toy())
        assert got in raised.value.got
        assert raised.value.fix
    assert gi.explain(toy()).refused


def test_a_to_that_makes_nothing(clean):
    registered(to_toy=lambda x, copyif=False: None)
    for source in (ours(), np.ones(3)):
        with pytest.raises(gi.ConversionTypeError, match="converter of 'toy'") as raised:
            gi.to(source, "toy")
        assert (raised.value.where, raised.value.got) == ("to_toy", "None")


@pytest.mark.parametrize("made", [None, True, "shared"])
@pytest.mark.parametrize(
    ("name", "kind", "ask"),
    [
        ("plan_from", "Plan", lambda: gi.explain(toy())),
        ("plan_to", "Plan", lambda: gi.explain(ours(), "toy")),
        ("describe", "ArrayInfo", lambda: gi.explain(toy())),
        ("describe", "ArrayInfo", lambda: gi.shares_memory(toy(), ours())),
    ],
)
def test_a_plan_that_is_none(clean, name, kind, ask, made):
    functions = {name: lambda x, copyif=False: made}
    if name == "describe":
        functions["plan_from"] = lambda obj, copyif=False: share("gpuinterop", "from_toy")
    registered(**functions)
    with pytest.raises(
        gi.errors.ArgumentTypeError, match=rf"\(toy\).*{kind} from {name}"
    ) as raised:
        ask()
    assert raised.value.fix.startswith(f"return one from {name}")


def test_a_plan_without_a_description_is_enough(clean):
    packed = ToyArray(np.zeros(3, [("tag", "u1"), ("value", "f4")])["value"])

    def plan_from(obj, copyif=False):
        return gi.explain(obj.host, "gpuinterop", copyif)

    registered(plan_from=plan_from)
    assert gi.explain(toy()).shared
    assert gi.explain(toy(), "numpy").shared
    assert gi.explain(toy(), "cudandarray").shared
    assert gi.explain(packed).refused
    plan = gi.explain(packed, "numpy", copyif=True)
    with gi.count_copies() as copied:
        gi.to(packed, "numpy", copyif=True)
    assert (plan.outcome, plan.bytes) == ("copied", copied.bytes) == ("copied", 12)


def test_what_the_functions_are_given(clean):
    given = []

    def plan_to(facts, copyif=False):
        given.append((facts, copyif))
        return share("toy", "to_toy")

    registered(plan_to=plan_to)
    assert isinstance(gi.explain(np.ones((2, 3), ">i4"), "toy", copyif=True), Plan)
    [(facts, copyif)] = given
    assert isinstance(facts, ArrayInfo)
    assert (facts.shape, facts.strides, facts.dtype, facts.device) == (
        (2, 3),
        (12, 4),
        "int32",
        "cpu",
    )
    assert facts.c_contiguous
    assert copyif is True
