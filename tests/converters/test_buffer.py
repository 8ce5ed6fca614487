"""Python's own buffers, there and back."""

import numpy as np
import pytest
from cases import agree

import gpuinterop as gi
from gpuinterop import converters


def test_the_fix_for_foreign_byte_order_is_a_line_that_works():
    a = memoryview(np.arange(4, dtype=">f4"))
    with pytest.raises(gi.DTypeError) as raised:
        gi.from_any(a)
    assert gi.explain(a).fix == raised.value.fix
    line = raised.value.fix.rpartition("byte order: ")[2]
    assert gi.from_any(eval(line, {"numpy": np, "a": a})).tolist() == [0, 1, 2, 3]


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
