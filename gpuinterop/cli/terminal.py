"""What only a terminal gets: colours and progress. Files and pipes get neither."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TextIO, TypeVar

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
    """Print a text, by default to the standard output, below any dots; on a terminal, without NO_COLOR, in colours."""
    _end_dots()
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


def progress(what: str, items: Iterable[T]) -> Iterable[T]:
    """Return the items. While they are taken, a terminal shows a bar of tqdm or rich, or a dot for each second."""
    if not is_terminal(sys.stderr):
        return items
    with suppress(ImportError):
        return import_module("tqdm").tqdm(items, what, leave=False)  # type: ignore[no-any-return]
    with suppress(ImportError):
        console = import_module("rich.console").Console(stderr=True)
        track = import_module("rich.progress").track
        return track(items, what, console=console, transient=True)  # type: ignore[no-any-return]
    return _dots(items)


_dots_shown = 0  # on the terminal's last line


def _dots(items: Iterable[T]) -> Iterator[T]:
    global _dots_shown
    began = time.monotonic()
    for item in items:
        yield item
        if time.monotonic() - began > _dots_shown + 1:
            _dots_shown += 1
            print(".", end="", file=sys.stderr, flush=True)
    _end_dots()


def _end_dots() -> None:
    global _dots_shown
    if _dots_shown:
        _dots_shown = 0
        print(file=sys.stderr, flush=True)


@contextmanager
def show_seconds(what: str) -> Iterator[None]:
    """Show the seconds of a block that has no items, after the first, as `progress` shows items."""
    ended = threading.Event()

    def show() -> None:
        if not ended.wait(1.0):
            deque(progress(what, iter(lambda: ended.wait(1.0), True)), 0)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
