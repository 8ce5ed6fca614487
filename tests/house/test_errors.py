"""Every error class keeps the template: parts, message, pickling, and both of its except clauses."""

import copy
import pickle

import numpy as np
import pytest

from gpuinterop import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]
PARTS = {
    "where": "to_somewhere",
    "expected": "C-contiguous memory",
    "got": "strides (4, 8)",
    "fix": "pass copyif=True",
}
# Exceptions that callers of Theano's, NumPy's and the array API's functions catch.
CAUGHT_AS = {
    "ArgumentTypeError": (TypeError,),
    "ArrayIndexError": (IndexError,),
    "AxisError": (ValueError, IndexError),
    "BoundsError": (ValueError,),
    "CaptureError": (RuntimeError,),
    "CompileError": (RuntimeError,),
    "ContextError": (RuntimeError,),
    "ContiguityError": (ValueError, BufferError),
    "ConversionTypeError": (TypeError, ValueError),
    "CopyForbiddenError": (ValueError, BufferError),
    "CudaError": (RuntimeError,),
    "DTypeError": (TypeError, ValueError),
    "DeviceError": (ValueError,),
    "DeviceMismatchError": (ValueError, BufferError),
    "ExchangeError": (ValueError, BufferError),
    "ExportError": (BufferError, ValueError),
    "GpuInteropError": (Exception,),
    "IndexKindError": (NotImplementedError, IndexError),
    "LibraryNotFoundError": (OSError,),
    "LinAlgError": (ValueError, np.linalg.LinAlgError),
    "MissingLibraryError": (ImportError,),
    "MissingNameError": (AttributeError,),
    "OutOfMemoryError": (MemoryError,),
    "ProtocolError": (TypeError,),
    "RangeError": (OverflowError,),
    "ReadOnlyError": (ValueError, BufferError),
    "ScalarIndexError": (IndexError, ValueError),
    "ShapeError": (ValueError,),
    "StreamError": (ValueError,),
    "UnsupportedError": (NotImplementedError,),
}


def test_all_lists_every_class():
    found = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert found == set(errors.__all__) == set(CAUGHT_AS)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_class_has_its_parts_message_and_except_clauses(cls):
    error = cls(**PARTS)
    assert {name: getattr(error, name) for name in PARTS} == PARTS
    assert str(error).splitlines() == [
        "to_somewhere: expected C-contiguous memory",
        "  got: strides (4, 8)",
        "  fix: pass copyif=True",
    ]
    assert error.reason.isidentifier()
    assert cls.__dict__.get("__doc__")
    for kind in (*CAUGHT_AS[cls.__name__], errors.GpuInteropError):
        with pytest.raises(kind) as caught:
            raise cls(**PARTS)
        assert type(caught.value) is cls
    for left_out in PARTS:
        with pytest.raises(TypeError, match=left_out):
            cls(**{name: value for name, value in PARTS.items() if name != left_out})


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_class_survives_pickling_and_copying(cls):
    error = cls(**PARTS, reason="other", axis=1)
    error.extra = [1, 2]
    pickled = [pickle.dumps(error, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for back in (*map(pickle.loads, pickled), copy.copy(error), copy.deepcopy(error)):
        assert type(back) is cls
        assert (str(back), vars(back)) == (str(error), vars(error))
