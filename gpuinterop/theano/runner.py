"""Runs an old program: with Theano's names, and in Python 3 if it is written in Python 2."""

from __future__ import annotations

import sys
import types
from pathlib import Path

from . import install

__all__ = ["compiled", "run", "translated"]


def translated(text: str, name: str) -> str:
    """Return Python 2 source code as Python 3; the numbers of the lines stay."""
    from fissix.refactor import RefactoringTool, get_fixers_from_package

    fixers = [
        f
        for f in get_fixers_from_package("fissix.fixes")
        if not f.endswith((".fix_import", ".fix_imports"))
    ]
    return str(
        RefactoringTool(fixers).refactor_string(text if text.endswith("\n") else text + "\n", name)
    )


def compiled(text: str, name: str) -> types.CodeType:
    """Compile source code of Python 3 or 2."""
    try:
        return compile(text, name, "exec")
    except SyntaxError:
        return compile(translated(text, name), name, "exec")


def run(script: str, arguments: list[str]) -> None:
    """Run a script as __main__."""
    path = Path(script)
    code = compiled(path.read_text(encoding="utf-8"), str(path))
    sys.path.insert(
        0, str(path.resolve().parent)
    )  # a `theano` beside the script is an installed one
    install()
    main = types.ModuleType("__main__")
    main.__file__ = str(path)
    sys.modules["__main__"] = main
    sys.argv = [str(path), *arguments]
    exec(code, main.__dict__)
