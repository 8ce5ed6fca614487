"""Python's own buffers, there and back."""

import numpy as np
import pytest
from helpers.cases import agree

import gpuinterop as gi
from gpuinterop import converters


def test_the_function_that_was_called_is_named():
    off = memoryview(bytearray(range(20)))[1:17].cast("f")
    text = memoryview(np.array(["a"]))
    for obj in (off, text):
        assert gi.explain(obj).where == "from_buffer"
        with pytest.raises(gi.GpuInteropError) as raised:
            gi.from_any(obj)
        assert raised.value.where == "from_buffer"


def test_buffer_without_numbers_is_refused():
    released = memoryview(b"abcd")
    released.release()
    for obj in (released, memoryview(np.array(["a"])), memoryview(np.zeros(2, "f4,i4"))):
        assert agree(obj, copyif=True)[0].refused
    with pytest.raises(gi.ConversionTypeError, match="buffer protocol"):
        converters.from_buffer(3)
    with pytest.raises(gi.ConversionTypeError):
        converters.to_buffer(b"abcd")
