"""Recurring errors, word for word: messages.txt has calls and their whole messages.

Other tests match the class, `.reason` and at most a word. After a change of words, run
`.venv/bin/python tests/house/test_messages.py`, and read what differs.
"""

import re
from pathlib import Path

import numpy as np
import pytest

import gpuinterop as gi

FILE = Path(__file__).with_name("messages.txt")


def names() -> dict[str, object]:
    """What the calls in messages.txt use."""
    x = gi.CudaNdarray(np.arange(6, dtype="float32").reshape(2, 3), device="cpu")
    n = gi.GpuArray(np.arange(3, dtype="int32"), device="cpu")
    frozen = x.view()
    frozen.flags.writeable = False
    return {"gi": gi, "np": np, "x": x, "n": n, "frozen": frozen, "host": np.arange(3.0)}


def cases() -> list[tuple[str, str]]:
    blocks = FILE.read_text(encoding="utf-8").strip().split("\n\n")
    pairs = (block.partition("\n") for block in blocks if not block.startswith("#"))
    return [(call, message) for call, _, message in pairs]


def message_of(call: str) -> str:
    try:
        exec(call, names())
    except gi.GpuInteropError as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"{call} raises nothing")


@pytest.mark.parametrize(("call", "message"), cases())
def test_message_is_the_recorded_one(call, message):
    assert message_of(call) == message


def test_no_other_test_repeats_a_recorded_message():
    message = "\n".join(message for _, message in cases())
    parts = re.findall(r"(?:expected|got:|fix:) (.+)", message)
    sentences = [part for part in parts if len(part.split()) > 5]
    assert len(sentences) > 50
    tests = {path: path.read_text(encoding="utf-8") for path in FILE.parents[1].rglob("test_*.py")}
    assert not [
        f"{path.name}: {part}" for path, text in tests.items() for part in sentences if part in text
    ]


if __name__ == "__main__":
    head = (
        "# A call, and the whole message of its error. Written by tests/house/test_messages.py.\n"
    )
    FILE.write_text(
        head + "".join(f"\n{call}\n{message_of(call)}\n" for call, _ in cases()), encoding="utf-8"
    )
