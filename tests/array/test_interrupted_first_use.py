"""An exception at any point of the import and the first operations leaves a process in which they can be repeated."""

import pytest
from doubles import driver

PARTS = 8  # of all points, for several processes

# Each point runs in a forked process, because it needs a fresh one. Points are counted by place in the source,
# at its first execution.
PROGRAM = """
import os, sys
import numpy

def first_use():
    import gpuinterop as gi
    x = gi.asarray([1.0, 2.0], device="cpu")
    return float((x + x).sum()) + float(gi.dot(x, x)) + numpy.asarray(x)[0]

def trace_until(point):
    places = []
    def trace(frame, event, argument):
        name = frame.f_code.co_filename
        if f"{os.sep}gpuinterop{os.sep}" not in name or "site-packages" in name:
            return None
        place = name, frame.f_lineno, event
        if event != "exception" and place not in known:
            known.add(place)
            places.append(place)
            if len(places) == point:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace
    known = set()
    sys.settrace(trace)
    try:
        first_use()
    except KeyboardInterrupt:
        pass
    sys.settrace(None)
    return places

def in_child(function):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            text = function()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writing, str(text).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    return text if status == 0 else f"status {status}"

def repeated(point):
    places = trace_until(point)
    value = first_use()
    return "" if value == 12 else f"{value} after {places[-1]}"

points = eval(in_child(lambda: [place[0].rpartition(os.sep)[2] for place in trace_until(-1)]))
step, part, parts = map(int, sys.argv[1:])
every = [1 if step == 1 else 4 if name == "core_callbacks.py" else step for name in points]
chosen = [i for i, nth in enumerate(every, 1) if i % nth == 0][part::parts]
wrong = [(point, text) for point in chosen if (text := in_child(lambda: repeated(point)))]
print(len(chosen), "points", wrong)
"""


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("step", "part"),
    [(150, 0), *(pytest.param(1, part, marks=pytest.mark.slow) for part in range(PARTS))],
)
def test_first_use_can_be_repeated_after_an_interrupt_at_any_point(step, part):
    parts = PARTS if step == 1 else 1
    done = driver.python(
        "-W", "ignore", "-c", PROGRAM, str(step), str(part), str(parts), timeout=3000
    )
    assert done.stdout.endswith("points []\n"), done.stdout + done.stderr
