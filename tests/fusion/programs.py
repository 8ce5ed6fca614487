"""Programs of random steps: what fused functions are compared with the same steps one by one on."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import gpuinterop as gi

UNARY = (
    "negative",
    "absolute",
    "square",
    "sqrt",
    "exp",
    "log1p",
    "sin",
    "tanh",
    "sigmoid",
    "floor",
)
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "arctan2")
REDUCTIONS = ("sum", "mean", "max", "min", "any", "all")
AXES = (None, 0, 1, (0, 1), -1)
NUMBERS = (None, 0.5, 3)

Step = tuple[str, Sequence[int], Any, Any]  # name, operands, a number instead of the second, axis


def program(steps: Sequence[Step], dtype: str) -> Callable[..., tuple[Any, ...]]:
    """A function of two matrices that applies the steps to earlier values; the last three come out."""

    def function(x: Any, y: Any) -> tuple[Any, ...]:
        values = [x, y]
        for name, picks, number, axis in steps:
            operands = [values[pick % len(values)] for pick in picks]
            if name in REDUCTIONS:
                values.append(_reduced(operands[0], name, axis, dtype))
            elif name in UNARY:
                values.append(getattr(gi, name)(operands[0]))
            elif name == "where":
                values.append(gi.where(operands[0] > 0.25, operands[1], operands[2]))
            else:
                second = operands[1] if number is None else number
                values.append(getattr(gi, name)(operands[0], second))
        return tuple(values[-3:])

    return function


def _reduced(value: Any, name: str, axis: Any, dtype: str) -> Any:
    """Independent of the order of summation: integer values are summed exactly, and no zero is negative."""
    if name in ("sum", "mean"):
        value = gi.rint(gi.clip(value, -50, 50))
    return getattr(value, name)(axis=axis, keepdims=True).astype(dtype) + 0.0


def random_steps(seed: int, depth: int, *, staged: bool) -> list[Step]:
    choose = random.Random(seed)
    names = UNARY + BINARY + ("where",) + (REDUCTIONS if staged else ())
    return [
        (
            choose.choice(names),
            [choose.randrange(1 << 16) for _ in range(3)],
            choose.choice(NUMBERS),
            choose.choice(AXES),
        )
        for _ in range(depth)
    ]
