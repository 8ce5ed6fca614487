"""Runs an old program with Theano's names, translated to Python 3 if it is written in Python 2."""

from __future__ import annotations

import sys
import tokenize
import traceback
import types
from pathlib import Path

from . import install
from .python2 import NAMES, compiled

__all__ = ["run"]


def run(script: str, arguments: list[str], python2: bool = False) -> int:
    """Run a script as __main__ and return its exit code.

    Prints the script's exceptions as Python does, without the lines of gpuinterop.
    """
    path = Path(script)
    try:
        with tokenize.open(path) as file:  # reads the encoding that the first lines declare
            code, names = compiled(file.read(), str(path), python2)
    except SyntaxError as error:
        traceback.print_exception(error.with_traceback(None), chain=False)
        return 1
    # A `theano` package beside the script counts as installed.
    sys.path.insert(0, str(path.resolve().parent))
    try:
        install()
    except ValueError as error:
        print(f"gpuinterop run: {error}", file=sys.stderr)
        return 2
    main = types.ModuleType("__main__")
    main.__dict__.update(names, __file__=str(path))
    sys.modules["__main__"] = main
    sys.argv = [str(path), *arguments]
    try:
        exec(code, main.__dict__)
    except BrokenPipeError:
        raise
    except Exception as error:
        # The first entry is the line above.
        frames = error.__traceback__ and error.__traceback__.tb_next
        traceback.print_exception(error.with_traceback(frames))
        if not names and getattr(error, "name", None) in NAMES:
            print(
                "The program is valid Python 3. To run it as Python 2: gpuinterop run --python2",
                file=sys.stderr,
            )
        return 1
    return 0
