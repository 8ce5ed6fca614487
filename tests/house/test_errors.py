"""Every error class keeps the template: parts, message, pickling, and both of its except clauses."""

import copy
import pickle

import pytest

from gpuinterop import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]
PARTS = {
    "where": "to_somewhere",
    "expected": "C-contiguous memory",
    "got": "strides (4, 8)",
    "fix": "pass copyif=True",
}
# What callers of the documents' names, of NumPy's and of the array API's catch.
CAUGHT_AS = {
    "ArgumentTypeError": (TypeError,),
    "ArrayIndexError": (IndexError,),
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
    "MissingLibraryError": (ImportError,),
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
    assert found == set(errors.__all__)


def test_every_class_has_its_except_clauses_written_here():
    assert set(CAUGHT_AS) == set(errors.__all__)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
class TestEveryClass:
    def test_parts_are_attributes_and_stand_in_the_message(self, cls):
        error = cls(**PARTS)
        for name, value in PARTS.items():
            assert getattr(error, name) == value
            assert value in str(error)

    def test_message_is_laid_out_in_lines(self, cls):
        assert str(cls(**PARTS)).splitlines() == [
            "to_somewhere: expected C-contiguous memory",
            "  got: strides (4, 8)",
            "  fix: pass copyif=True",
        ]

    def test_reason_is_one_word_and_can_be_overridden(self, cls):
        assert cls(**PARTS).reason.isidentifier()
        assert cls(**PARTS, reason="other").reason == "other"

    def test_has_a_docstring_of_its_own(self, cls):
        assert cls.__dict__.get("__doc__")

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_survives_pickling(self, cls, protocol):
        error = cls(**PARTS, reason="other", axis=1)
        error.extra = [1, 2]
        back = pickle.loads(pickle.dumps(error, protocol))
        assert type(back) is cls
        assert str(back) == str(error)
        assert vars(back) == vars(error)

    def test_survives_copying(self, cls):
        error = cls(**PARTS, axis=2)
        for back in (copy.copy(error), copy.deepcopy(error)):
            assert type(back) is cls
            assert str(back) == str(error)
            assert (back.reason, back.axis) == (cls.reason, 2)
            assert {name: getattr(back, name) for name in PARTS} == PARTS

    def test_both_except_clauses_catch(self, cls):
        for kind in CAUGHT_AS[cls.__name__]:
            with pytest.raises(kind) as caught:
                raise cls(**PARTS)
            assert type(caught.value) is cls

    def test_is_a_gpuinterop_error(self, cls):
        assert issubclass(cls, errors.GpuInteropError)

    @pytest.mark.parametrize("left_out", PARTS)
    def test_no_part_can_be_left_out(self, cls, left_out):
        with pytest.raises(TypeError, match=left_out):
            cls(**{name: value for name, value in PARTS.items() if name != left_out})
        with pytest.raises(TypeError):
            cls("just so")
