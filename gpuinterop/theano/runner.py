"""Runs an old program with Theano's names, translated to Python 3 if it is written in Python 2."""

from __future__ import annotations

import sys
import types
from contextlib import suppress
from pathlib import Path

from . import install

__all__ = ["compiled", "run", "translated"]


def translated(text: str, name: str) -> str:
    """Return Python 2 source code as Python 3, with the same line numbers. Raises SyntaxError."""
    from fissix.pgen2.parse import ParseError
    from fissix.pgen2.tokenize import TokenError
    from fissix.refactor import RefactoringTool, get_fixers_from_package

    fixers = [
        f
        for f in get_fixers_from_package("fissix.fixes")
        if not f.endswith((".fix_import", ".fix_imports"))
    ]
    try:
        return str(RefactoringTool(fixers).refactor_string(text.rstrip("\n") + "\n", name))
    except ParseError as error:
        line, column = error.context[1]
    except TokenError as error:
        line, column = error.args[1]
    shown = [*text.splitlines(), ""][line - 1]
    raise SyntaxError("neither Python 3 nor Python 2", (name, line, column + 1, shown))


def compiled(text: str, name: str) -> types.CodeType:
    """Compile source code of Python 3 or 2."""
    with suppress(SyntaxError):
        return compile(text, name, "exec")
    return compile(translated(text, name), name, "exec")


def run(script: str, arguments: list[str]) -> None:
    """Run a script as __main__."""
    path = Path(script)
    code = compiled(path.read_text(encoding="utf-8"), str(path))
    sys.path.insert(
        0, str(path.resolve().parent)
    )  # a `theano` beside the script counts as installed
    install()
    main = types.ModuleType("__main__")
    main.__file__ = str(path)
    sys.modules["__main__"] = main
    sys.argv = [str(path), *arguments]
    exec(code, main.__dict__)
