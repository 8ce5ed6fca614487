"""Whether programs for OpenCL can be compiled on this machine."""

from functools import cache

import pytest


@cache
def _unknown_processor() -> bool:
    """PoCL 3.0 has a compiler of 2022, which makes no programs for processors that are newer."""
    cl = pytest.importorskip("pyopencl")
    context = cl.Context([d for p in cl.get_platforms() for d in p.get_devices()][:1])
    try:
        cl.Program(context, "__kernel void nothing(void) {}").build()
    except cl.RuntimeError as error:
        if "unknown target CPU" not in str(error):
            raise
        return True
    return False


def require_compiler() -> None:
    """Skip the test where the compiler does not know the processor."""
    if _unknown_processor():
        pytest.skip("the OpenCL compiler does not know this processor")
