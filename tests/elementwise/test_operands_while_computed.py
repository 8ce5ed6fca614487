"""What happens to operands between the call and the launch: copies are announced, order is kept."""

import numpy as np
import pytest
from doubles import driver

import gpuinterop as gi
from gpuinterop import _core
from gpuinterop.elementwise import calls


def doubles(device, *sizes):
    return [gi.GpuArray(np.arange(n), dtype="float64", device=device) for n in sizes]


# The operand that another stream uses, what is prepared before, and the call that compiles a kernel.
COMPILES = {
    "add": lambda x, other: (x, lambda: None, lambda: x.reshape(4, 2)[::2] + 1),
    "take": lambda x, other: (x, lambda: None, lambda: x.reshape(4, 2).take(np.arange(2), axis=0)),
    "copy": lambda x, other: (x, lambda: None, lambda: x.reshape(4, 2)[::2].copy()),
    # The kernel is there, and the one that copies the other operand is not.
    "copy of another operand": lambda x, other: (
        x, lambda: gi.add(x, x.copy(), out=other[1:]), lambda: gi.add(x, other[:-1], out=other[1:])),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPILES)
def test_a_use_on_another_stream_while_a_kernel_is_compiled_loses_no_order(
    device, name, monkeypatch
):
    here, elsewhere = gi.Stream(device), gi.Stream(device)
    x, prepare, call = COMPILES[name](*doubles(device, 8, 9))
    compile_source, compiled = calls.compile_source, []

    def compile_meanwhile(*args, **options):
        with elsewhere:  # as another thread may do now
            x[:].copy()
        compiled.append(x._stream == elsewhere.handle)
        return compile_source(*args, **options)

    gi.synchronize()
    _core._forget_calls()
    prepare()
    monkeypatch.setattr(calls, "compile_source", compile_meanwhile)
    with here:
        call()
    assert x._stream == here.handle  # so a later release of x waits for the kernel
    assert all(compiled)
    assert len(compiled) > 0 or device == "cpu"


@pytest.mark.gpu
def test_loading_a_kernel_lets_other_threads_run():
    """It may wait for the device, whose work may wait for a thread that needs the GIL."""
    code = """
import threading
from doubles import driver
import gpuinterop as gi
x = gi.ones(1000, device="cuda:0")
gate = driver.Gate(gi.Stream().handle)
threading.Timer(0.1, gate.open).start()
y, z = gi.sinh(x) + 1, x.reshape(25, 40) @ x.reshape(40, 25)
assert abs(y.get() - 2.1752012).max() < 1e-5 and z.get().min() == 40
"""
    driver.run(code)
