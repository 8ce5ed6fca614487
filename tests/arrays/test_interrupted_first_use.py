"""An interrupt at many points of the import and the first operations leaves a process in which they can be repeated."""

import os

import pytest
from doubles import driver

STEP, PARTS = 6, 2  # every sixth point, and a part of these for each of several processes

# The process forks at each point, and the child is interrupted there. Points are counted by place in the source,
# at its first execution; in the body of a class there are none, because it is dropped with its module. In importlib
# they are counted for the package and for the core each, which it can drop from sys.modules after they were loaded.
PROGRAM = """
import os, sys
import numpy, pathlib  # Python 3.13 cannot import pathlib again after an interrupt
from doubles import interrupts

step, part = map(int, sys.argv[1:])
known, tried, wrong, answer = set(), 0, [], None
imported = "gpuinterop", "gpuinterop._core"

def first_use():
    import gpuinterop as gi
    x = gi.asarray([1.0, 2.0], device="cpu")
    return float((x + x).sum()) + float(gi.dot(x, x)) + numpy.asarray(x)[0]

def trace(frame, event, argument):
    global answer, tried
    code = frame.f_code
    module = None
    if tried is None:  # in a child
        return None
    if code.co_name == "get_data":  # its open file would be read to the end by the child
        return None
    if code.co_filename.startswith("<frozen importlib"):
        # Its arguments are the name, or a spec or a lock that has it.
        arguments = [getattr(value, "__dict__", {"name": value}).get("name") for value in frame.f_locals.values()]
        module = next((name for name in imported if name in arguments), None)
        if module is None:
            return None
    elif f"{os.sep}gpuinterop{os.sep}" not in code.co_filename or "site-packages" in code.co_filename:
        return None
    elif code.co_name != "<module>" and not code.co_flags & 1:  # CO_OPTIMIZED: a function
        return None
    place = code.co_filename, frame.f_lineno, event, module
    if event in ("exception", "return") or place in known:
        return trace
    known.add(place)
    # Of few points more are in these places, whose state outlives a failed import.
    many = step > 20 and (module or code.co_filename.endswith("elementwise/calls.py"))
    if len(known) % (12 if many else step) != part:
        return trace
    reading, answer = os.pipe()
    if os.fork() == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        frame.f_trace, tried = interrupts.interrupt, None
        return None  # f_trace stays
    os.close(answer)
    with os.fdopen(reading) as pipe:
        found = pipe.read()
    tried += 1
    if os.wait()[1] or found != "12.0":
        wrong.append((place, found))
    return trace

interrupts.prepare()
sys.settrace(trace)
try:
    first_use()
except KeyboardInterrupt:
    pass
sys.settrace(None)
if tried is None:  # in a child
    try:
        found = first_use()
    except BaseException as error:
        found = f"{type(error).__name__}: {error}"
    os.write(answer, str(found).encode())
    os._exit(0)
print(tried, "points", wrong)
"""


@pytest.mark.skipif(
    "GPUINTEROP_SANITIZED" in os.environ, reason="not under AddressSanitizer: a fork takes long"
)
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("step", "part"),
    [
        (150, 0),
        *(pytest.param(STEP * PARTS, STEP * i, marks=pytest.mark.slow) for i in range(PARTS)),
    ],
)
def test_first_use_can_be_repeated_after_an_interrupt(step, part):
    done = driver.python("-W", "ignore", "-c", PROGRAM, str(step), str(part), timeout=3000)
    assert done.stdout.endswith("points []\n"), done.stdout + done.stderr
