"""Which Python functions a call runs."""

import gc
import sys
from pathlib import Path

import gpuinterop

PACKAGE = str(Path(gpuinterop.__file__).parent)


def functions_of(call, folder: str = "") -> list[str]:
    """The names of the Python functions that the call runs, after three calls that fill the caches.

    `folder`: only those of files in it.
    """
    for _ in range(3):
        call()
    run: list[str] = []

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(folder):
            run.append(frame.f_code.co_name)

    gc.disable()  # others have callbacks there
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return run if folder else run[1:]  # the first one is the call itself
