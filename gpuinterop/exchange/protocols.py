"""Which exchange protocols an object implements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def interfaces_of(obj: Any) -> Iterator[str]:
    """Yield the names of the exchange protocols that `obj` has as attributes."""
    for name in "__dlpack__", "__cuda_array_interface__", "__array_interface__":
        try:
            getattr(obj, name)
        except AttributeError:
            continue
        except Exception:  # the object has the protocol but raises: torch's tensors inside autograd
            pass
        yield name


def protocols_of(obj: Any) -> tuple[str, ...]:
    """Return the names of the exchange protocols that `obj` has, in the order they are tried.

    Examples
    --------
    >>> protocols_of(b"bytes")
    ('buffer protocol',)
    """
    cls = type(obj)
    found = []
    if any(hasattr(cls, name) for name in _EXCHANGE_TABLES):
        found.append("DLPack C exchange API")
    if cls.__name__ == "PyCapsule" and '"dltensor' in repr(obj):
        found.append("DLPack capsule")
    found += interfaces_of(obj)
    try:
        memoryview(obj)
    except TypeError:
        return tuple(found)
    except Exception:  # the object has the protocol but raises
        pass
    return (*found, "buffer protocol")


def has_array_method(obj: Any) -> bool:
    """Return whether `obj` has NumPy's method `__array__` but no exchange protocol, as a Series of pandas."""
    cls = type(obj)
    return hasattr(cls, "__array__") and not isinstance(obj, type) and not protocols_of(obj)


_EXCHANGE_TABLES = "__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__"
