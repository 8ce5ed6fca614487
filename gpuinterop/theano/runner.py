"""Runs an old program with Theano's names, translated to Python 3 if it is written in Python 2."""

from __future__ import annotations

import importlib.abc
import importlib.util
import linecache
import sys
import traceback
import types
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from pathlib import Path
from typing import Any

from . import install
from .python2 import NAMES, compiled


def run(script: str, arguments: list[str], as_python2: bool = False, replace: bool = False) -> int:
    """Run a script, or the standard input for "-", as __main__ and return its exit code.

    Prints the script's exceptions as Python does, without the lines of gpuinterop.
    """
    piped = script == "-"
    name = "<stdin>" if piped else script
    source = sys.stdin.buffer.read() if piped else Path(script).read_bytes()
    try:
        text = importlib.util.decode_source(source)  # by the encoding that the first lines declare
        code, names = compiled(text, name, as_python2)
    except (SyntaxError, UnicodeDecodeError) as error:
        if isinstance(error, UnicodeDecodeError):  # as Python reports it
            error = SyntaxError(f"(unicode error) {error}", (name, 0, 0, ""))
        traceback.print_exception(error.with_traceback(None), chain=False)
        return 1
    # Tracebacks show these lines: a pipe cannot be read again.
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    folder = Path.cwd() if piped else Path(script).resolve().parent
    # A `theano` package next to the script counts as installed.
    sys.path.insert(0, str(folder))
    sys.meta_path.insert(0, _Theano(replace))
    _translate_modules(folder, as_python2 or bool(names))  # names: the program was translated
    main = types.ModuleType("__main__")
    main.__dict__.update(names, __file__=name)
    sys.modules["__main__"] = main
    sys.argv = [script, *arguments]
    try:
        exec(code, main.__dict__)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt as error:
        _drop_own_frames(error)
        shown = error.__traceback__
        # Python prints it and ends the process with the signal.
        sys.excepthook = lambda _kind, error, _tb: traceback.print_exception(
            error.with_traceback(shown)
        )
        raise
    except Exception as error:
        _drop_own_frames(error)
        traceback.print_exception(error)
        if not (as_python2 or names) and getattr(error, "name", None) in NAMES:
            print(
                f"{error.name} is a name of Python 2 in a file that is valid Python 3. "  # type: ignore[attr-defined]
                "To run all files as Python 2: gpuinterop run --python2",
                file=sys.stderr,
            )
        return 1
    return 0


# Tracebacks omit files whose names begin with these: this package and the import system.
_OWN = (str(Path(__file__).parent), "<frozen importlib")


def _drop_own_frames(error: BaseException) -> None:
    """Remove the frames of `_OWN` from an exception's traceback."""
    frames = []
    tb = error.__traceback__
    while tb is not None:
        if not tb.tb_frame.f_code.co_filename.startswith(_OWN):
            frames.append(tb)
        tb = tb.tb_next
    for frame, after in zip(frames, [*frames[1:], None], strict=True):
        frame.tb_next = after
    error.__traceback__ = frames[0] if frames else None


class _Theano(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Installs Theano's names when the program imports them: it may set THEANO_FLAGS before."""

    def __init__(self, replace: bool) -> None:
        self.replace = replace

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in ("theano", "cuda_ndarray"):
            return None
        sys.meta_path.remove(self)
        try:
            install(replace=self.replace)
        except ValueError as error:
            print(f"gpuinterop run: {error}", file=sys.stderr)
            raise SystemExit(2) from None
        return importlib.util.spec_from_loader(name, self) if name in sys.modules else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return sys.modules[spec.name]

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class _Module(SourceFileLoader):
    """Loads a module of the program, translated if it is not valid Python 3."""

    as_python2 = False

    def get_code(self, fullname: str) -> types.CodeType:
        path = self.get_filename(fullname)
        text = importlib.util.decode_source(self.get_data(path))
        code, names = compiled(text, path, self.as_python2, module=True)
        sys.modules[fullname].__dict__.update(names)
        return code


class _Python2Module(_Module):
    """Loads a module of a program in Python 2, translated even if it is valid Python 3: `/` rounds integers."""

    as_python2 = True


def _translate_modules(folder: Path, as_python2: bool) -> None:
    """Let imports translate the modules in the folder of a program, but not installed ones, which can be below it."""
    installed = [Path(__file__).parents[1], *(Path(entry).resolve() for entry in sys.path)]
    installed = [place for place in installed if folder in place.parents]
    loader = _Python2Module if as_python2 else _Module
    loaders = (ExtensionFileLoader, EXTENSION_SUFFIXES), (loader, SOURCE_SUFFIXES)

    def finder(path: str) -> FileFinder:
        place = Path(path).resolve()
        if not place.is_relative_to(folder) or any(map(place.is_relative_to, installed)):
            raise ImportError(path)
        return FileFinder(path, *loaders)

    sys.path_hooks.insert(0, finder)
    sys.path_importer_cache.clear()
