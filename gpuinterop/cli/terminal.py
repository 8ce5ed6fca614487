"""What only a terminal gets: colours, and a line that shows how far a command is. Files and pipes get neither."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, TextIO, TypeVar

T = TypeVar("T")
GREEN, YELLOW, RED, BOLD = "32", "33", "1;31", "1"
COLOURS = {
    "shared": GREEN, "S": GREEN, "no problems found": GREEN, "copied": YELLOW, "C": YELLOW,
    "refused": YELLOW, "R": YELLOW, "hint": YELLOW, "wrong": RED, "WRONG": RED, "W": RED, "warning": RED, "BROKEN": RED,
    "fix:": BOLD,
}  # fmt: skip
_WORD = re.compile(
    rf"\b({'|'.join(sorted((w for w in COLOURS if len(w) > 1), reverse=True))})(?! object)"
)
_LETTER = re.compile(r"(?<= )([SCRW])(?= |$)")


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether the stream is open and shows its text to a person."""
    return stream is not None and not stream.closed and stream.isatty()


def say(text: object, stream: TextIO | None = None) -> None:
    """Print a text, by default to the standard output; on a terminal, without NO_COLOR, in colours."""
    stream = stream or sys.stdout
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    shown = (
        str(text) if plain or not is_terminal(stream) else "\n".join(map(_painted, str(text).split("\n")))
    )  # fmt: skip
    print(shown, file=stream)


def _painted(line: str) -> str:
    # Rows of the matrix have letters for outcomes.
    found = _LETTER if line.startswith(("to ", "from ")) else _WORD
    return found.sub(lambda word: f"\x1b[{COLOURS[word[1]]}m{word[1]}\x1b[0m", line)


class Progress:
    """Within the block, a terminal's last line shows a bar of the finished items, and the seconds.

    A thread writes it to the standard error, because one item, such as an import, may take most of the time.
    """

    def __init__(self, what: str) -> None:
        self.what, self.done = what, ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def over(self, items: Sequence[T]) -> Iterator[T]:
        """Yield the items and count them."""
        for i, item in enumerate(items):
            full = 20 * i // len(items)
            self.done = f" [{'#' * full}{'.' * (20 - full)}] {i} of {len(items)}"
            yield item
        self.done = ""

    def __enter__(self) -> Progress:
        if is_terminal(sys.stderr):
            self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _show(self) -> None:
        began = time.monotonic()
        while not self._ended.wait(1.0):
            seconds = time.monotonic() - began
            print(
                f"\r{self.what}{self.done}, {seconds:.0f} s ", end="", file=sys.stderr, flush=True
            )
        print(f"\r{' ' * 60}\r", end="", file=sys.stderr, flush=True)
