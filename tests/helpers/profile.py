"""Which Python functions a call runs."""

import gc
import sys


def functions_of(call) -> list[str]:
    """The names of the Python functions that the call runs, after three calls that fill the caches."""
    for _ in range(3):
        call()
    run: list[str] = []
    gc.disable()  # others have callbacks there
    sys.setprofile(lambda frame, event, _: event == "call" and run.append(frame.f_code.co_name))
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return run[1:]  # the first one is the call itself
