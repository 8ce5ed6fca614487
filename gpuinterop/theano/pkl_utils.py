"""theano.misc.pkl_utils: pickles whose arrays are files of a zip archive, which `numpy.load` reads too."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import Counter
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.misc.pkl_utils import StripPickler

import gpuinterop as gi

__all__ = ["CompatUnpickler", "StripPickler", "dump", "load"]

# The words before the names of arrays in the pickle.
_KINDS: dict[str, Any] = {"ndarray": np.asarray, "cuda_ndarray": gi.CudaNdarray}


def dump(obj: Any, file_handler: Any, protocol: int = 2) -> None:
    """Pickle an object. The array of a shared variable has its name in the archive, others have numbers."""
    with zipfile.ZipFile(file_handler, "w", zipfile.ZIP_DEFLATED) as archive:
        names: dict[int, str] = {}  # of the arrays of shared variables, by their ids
        written: dict[int, str] = {}
        counts: Counter[str] = Counter()

        def persistent_id(x: Any) -> str | None:
            if isinstance(x, SharedVariable) and x.name:
                names[id(x.container.storage[0])] = x.name
            kind = {np.ndarray: "ndarray", gi.CudaNdarray: "cuda_ndarray"}.get(type(x))
            if kind is None:
                return None
            if id(x) not in written:
                name = names.get(id(x))
                number = counts[name or ""]
                counts[name or ""] += 1
                name = (
                    f"array_{number}"
                    if name is None
                    else f"{name}_{number + 1}"
                    if number
                    else name
                )
                with archive.open(name, "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asarray(x))
                written[id(x)] = f"{kind}.{name}"
            return written[id(x)]

        stripped = io.BytesIO()
        pickler = StripPickler(stripped, protocol)
        pickler.persistent_id = persistent_id
        pickler.dump(obj)
        archive.writestr("pkl", stripped.getvalue())


def load(f: Any) -> Any:
    """Return the object that a file contains; Theano can have written it."""
    with zipfile.ZipFile(f) as archive:
        found: dict[str, Any] = {}

        def persistent_load(text: str) -> Any:
            kind, _, name = text.partition(".")
            if name not in found:
                with archive.open(name) as file:
                    found[name] = _KINDS[kind](np.lib.format.read_array(file))
            return found[name]

        unpickler: Any = CompatUnpickler(archive.open("pkl"))
        unpickler.persistent_load = persistent_load
        return unpickler.load()


class CompatUnpickler(pickle.Unpickler):
    """Reads pickles of Python 2 too, whose strings are bytes."""

    def __init__(self, file: Any, **options: Any) -> None:
        super().__init__(file, **{"encoding": "latin1", **options})
