"""Each builder of errors.messages gives a complete message, and the core calls builders that exist."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

from gpuinterop.errors import GpuInteropError, messages

NATIVE = Path(__file__).parents[2] / "native"
FUNCTIONS = ("axis_out_of_range", "dtype_of_class", "index_out_of_range", "integer_out_of_range",
             "misaligned", "not_one_of", "no_such_device", "wrong_order", "shapes_do_not_broadcast",
             "too_many_indices")  # fmt: skip
BUILDERS = {
    name: value
    for name, value in vars(messages).items()
    if name in FUNCTIONS or isinstance(value, messages.Builder)
}
SAMPLES = {"ndim": 2, "count": 3, "axis": 5, "itemsize": 4, "extent": 3, "shape": "(2, 3)", "choices": "CF",
           "orders": "CF",
           "got": "text", "accepted": ["device", "dtype"], "shapes": "(3, 4)", "name": "dtypes"}  # fmt: skip


def names(builder):
    """The names of the values that a builder takes."""
    if isinstance(builder, messages.Builder):
        return builder.names
    given = list(inspect.signature(builder).parameters.values())[1:]
    return [p.name for p in given if p.default is inspect.Parameter.empty]


def arguments(builder, where):
    return [where, *(SAMPLES.get(name, "value") for name in names(builder))]


@pytest.mark.parametrize("where", ["take", "x += y"])
@pytest.mark.parametrize("name", BUILDERS)
def test_a_builder_returns_an_error_with_all_four_parts(name, where):
    builder = BUILDERS[name]
    error = builder(*arguments(builder, where))
    assert isinstance(error, GpuInteropError)
    assert error.where == where
    for part in (error.expected, error.got, error.fix):
        assert part
        assert not part.endswith(".")


@pytest.mark.parametrize("name", [name for name in BUILDERS if name.startswith("out_")])
def test_an_operator_in_place_does_not_mention_out(name):
    if name != "out_is_no_array":  # x is always an array
        error = BUILDERS[name](*arguments(BUILDERS[name], "x += y"))
        assert "out=" not in error.expected + error.got


def calls_of_builders() -> list[tuple[str, str, int]]:
    """(file, builder, number of values) of every fail_with in the core."""
    found = []
    for path in sorted(NATIVE.rglob("*.[ch]pp")):
        text = re.sub(
            r'"([^"\n]*)"',
            lambda literal: '"' + re.sub(r"[^\w]", " ", literal[1]) + '"',
            path.read_text(encoding="utf-8"),
        )
        for call in re.finditer(r'fail_with\(\s*"(\w+)",[^{};]*?(\{|\))', text):
            count = 0
            if call[2] == "{":
                depth, at, count = 1, call.end(), 1
                while depth:
                    depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(text[at], 0)
                    count += text[at] == "," and depth == 1
                    at += 1
            found.append((path.name, call[1], count))
    return found


def test_the_core_calls_builders_that_exist_with_their_number_of_values():
    calls = calls_of_builders()
    assert calls
    for file, name, count in calls:
        assert name in BUILDERS, (file, name)
        builder = BUILDERS[name]
        if isinstance(builder, messages.Builder):
            assert len(builder.names) == count, (file, name)
        else:
            inspect.signature(builder).bind("where", *range(count))


def test_a_long_value_is_shortened():
    error = messages.not_an_int("take", "axis", np.arange(1000))
    assert len(error.got) <= 120
