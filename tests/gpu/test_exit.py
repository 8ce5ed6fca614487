"""Interpreter exit with memory on the GPU, in every library, in any order."""

import itertools

import pytest
from doubles import driver

pytestmark = pytest.mark.gpu

GPUINTEROP = (
    "import gpuinterop as gi; x = gi.ones((8, 8), device='cuda'); v = x[::2]; s = gi.Stream('cuda')"
)
TORCH = "import torch; t = torch.ones(8, 8, device='cuda')"
CUPY = "import cupy; c = cupy.ones((8, 8), dtype='float32')"
ENDS = {
    "shared": "a = torch.from_dlpack(x); b = gi.from_dlpack(t)\n"
    "d = cupy.from_dlpack(v); e = gi.from_dlpack(c)",
    "capsule": "k = x.__dlpack__(); l = v.__dlpack__(max_version=(1, 0), stream=1)",
    "cycle": "class C: pass\nm = C(); m.me = m; m.x = gi.from_dlpack(t)[1:]; m.t = torch.from_dlpack(v)",
    "threads": "import threading\nthreading.Thread(target=lambda: globals().update(w=x.copy())).start()",
    "builtins": "import builtins; builtins.kept = [x, v, torch.from_dlpack(x), gi.from_dlpack(c)]",
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("order", list(itertools.permutations([GPUINTEROP, TORCH, CUPY]))[::2])
def test_exit_is_clean(end, order):
    program = "\n".join([*order, ENDS[end], "print('done', flush=True)"])
    done = driver.python("-X", "faulthandler", "-c", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "done"
    assert "Error" not in done.stderr
    assert "error" not in done.stderr
