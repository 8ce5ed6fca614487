"""Another process that opens handles of `gpuinterop.share`."""

import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

# Another process: reads pickled (handle, code) pairs, runs the code with `h`, and answers with the repr of `r`.
OPENER = """
import os, pickle, struct, sys
import numpy as np
import gpuinterop as gi
kept = {}
sys.stdout.buffer.write(b"ready\\n"); sys.stdout.flush()
while head := sys.stdin.buffer.read(8):
    text = sys.stdin.buffer.read(struct.unpack("q", head)[0])
    names = {}
    try:
        data, code = pickle.loads(text)
        names = {"gi": gi, "np": np, "os": os, "kept": kept, "pickle": pickle, "data": data}
        if isinstance(data, bytes):
            names["h"] = pickle.loads(data)
        exec(code, names)
        answer = repr(names.get("r"))
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    names.clear()
    print(ascii(answer), flush=True)
"""


class Opener:
    """A process that opens handles."""

    def __init__(self):
        environment = {**os.environ, "PYTHONPATH": ""}
        self.process = subprocess.Popen(
            [sys.executable, "-c", OPENER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert self.process.stdout.readline() == b"ready\n"

    def send(self, handle, code):
        text = pickle.dumps((handle if isinstance(handle, bytes) else pickle.dumps(handle), code))
        self.process.stdin.write(struct.pack("q", len(text)) + text)
        self.process.stdin.flush()

    def run(self, handle, code):
        self.send(handle, code)
        return eval(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


CYCLES = """
import gc
def flat():
    gc.collect()
    return len(os.listdir("/proc/self/fd")), len(open("/proc/self/maps").readlines())
for i in range(50):
    h.open()
before = flat()
for i in range(COUNT):
    y = h.open()
    if WRITES:
        y[0, 0] = i
    del y
r = before, flat()
"""


def descriptors():
    return len([*Path("/proc/self/fd").iterdir()])


def open_in_cycles(opener, handle, count, writes=False):
    """Check that openings leave no descriptor and no mapping, here and in the other process."""
    before = descriptors()
    code = CYCLES.replace("COUNT", str(count)).replace("WRITES", str(writes))
    first, last = eval(opener.run(handle, code))
    assert handle.wait(20)
    assert first[0] == last[0]
    assert last[1] <= first[1] + 5  # mappings of Python's allocator, and of the driver
    assert descriptors() <= before
