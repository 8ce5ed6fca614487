"""Names that NumPy and Python's modules have dropped, and files in the modes in which old programs opened them."""

from __future__ import annotations

import csv
import io
import itertools
import pickle
import string
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

_python3: dict[str, Any] = {**vars(pickle), **vars(csv)}


class _Cast:
    def __getitem__(self, dtype: Any) -> Callable[[Any], Any]:
        return lambda x: np.asarray(x, dtype)


_NUMPY = {
    "float": float, "int": int, "object": object, "str": str, "complex": complex, "unicode": str, "float_": np.float64,
    "complex_": np.complex128, "string_": np.bytes_, "unicode_": np.str_, "Inf": np.inf, "Infinity": np.inf,
    "infty": np.inf, "PINF": np.inf, "NINF": -np.inf, "NaN": np.nan, "NAN": np.nan, "cast": _Cast(), "alen": len,
    "rank": np.ndim, "product": np.prod, "cumproduct": np.cumprod, "alltrue": np.all, "sometrue": np.any,
    "row_stack": np.vstack, "round_": np.round, "asscalar": lambda x: x.item(), "in1d": np.isin, "mat": np.asmatrix,
    "trapz": getattr(np, "trapezoid", None), "asfarray": lambda x, dtype=float: np.asarray(x, dtype),
}  # fmt: skip


_ITERTOOLS = {
    "imap": map, "izip": zip, "ifilter": filter, "ifilterfalse": itertools.filterfalse,
    "izip_longest": itertools.zip_longest,
}  # fmt: skip


def restore() -> None:
    """Give the modules these names, and let pickle and csv use files opened in the other mode, text or binary."""
    vars(time)["clock"] = time.process_time
    vars(sys)["setdefaultencoding"] = lambda _: None
    methods = {name for name in dir(str) if not name.startswith("_")} - set(dir(string))
    vars(string).update(
        {name: getattr(str, name) for name in methods},
        join=lambda words, sep=" ": sep.join(words), atof=float, atoi=int, atol=int, letters=string.ascii_letters,
        lowercase=string.ascii_lowercase, uppercase=string.ascii_uppercase,
    )  # fmt: skip
    for module, names in ((np, _NUMPY), (itertools, _ITERTOOLS)):
        vars(module).update(names | vars(module))
    vars(pickle).update(load=_load, loads=_loads, dump=_dump)
    vars(csv).update(reader=_reader, writer=_writer)


def _load(file: Any, **options: Any) -> Any:
    # Strings of Python 2 are bytes; those of an array are its data.
    return _python3["load"](_binary(file), **{"encoding": "latin1", **options})


def _loads(data: Any, **options: Any) -> Any:
    return _python3["loads"](data, **{"encoding": "latin1", **options})


def _dump(x: Any, file: Any, *rest: Any, **options: Any) -> None:
    _python3["dump"](x, _binary(file), *rest, **options)


def _binary(file: Any) -> Any:
    return getattr(file, "buffer", file)


def _reader(lines: Any, *rest: Any, **options: Any) -> Any:
    lines = (line.decode() if isinstance(line, bytes) else line for line in lines)
    return _python3["reader"](lines, *rest, **options)


def _writer(file: Any, *rest: Any, **options: Any) -> Any:
    return _python3["writer"](_Text(file), *rest, **options)


class _Text:
    """A file to which text is written."""

    def __init__(self, file: Any) -> None:
        binary = isinstance(file, io.BufferedIOBase)
        self.write = (lambda text: file.write(text.encode())) if binary else file.write
