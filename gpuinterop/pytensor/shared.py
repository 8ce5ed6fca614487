"""Shared variables on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable

import gpuinterop as gi
from gpuinterop import _core

from . import settings
from .device_variables import CudaNdarrayType, GpuArrayType, GpuArrayVariable, device_type

_ARRAYS = (gi.CudaNdarray, gi.GpuArray)


class GpuArraySharedVariable(GpuArrayVariable, SharedVariable):
    """A shared variable whose value is on the device."""

    def get_value(self, borrow: bool = False, return_internal_type: bool = False) -> Any:
        """Return the value as a new NumPy array, or with ``return_internal_type=True`` as a device array.

        ``borrow=True`` with ``return_internal_type=True`` returns the array itself; otherwise a copy.
        """
        value = self.container.value
        if not return_internal_type:
            return value.get()
        return value if borrow else value.copy()

    def set_value(self, new_value: Any, borrow: bool = False) -> None:
        """Set the value: host values are copied into the current array if the shape allows it.

        A device array is copied, or with ``borrow=True`` becomes the value itself.
        """
        present = self.container.storage[0]
        if not isinstance(new_value, _ARRAYS):
            host = self.type.host().filter(new_value, allow_downcast=self.container.allow_downcast)
            if present is not None and present.shape == host.shape and not present.readonly:
                present[...] = host
                return
            new_value = self.type.array_class(host, device=settings.device())
        elif not borrow:
            new_value = new_value.copy()
        self.container.value = new_value

    def zero(self, borrow: bool = False) -> None:
        """Set the value to zeros: in a new array, or with ``borrow=True`` in the current memory."""
        value = self.container.storage[0]
        if borrow:
            value[...] = 0
        else:
            zeros = gi.zeros(value.shape, str(value.dtype), device=value.device)
            self.container.value = _core.view(type(value), zeros)


def device_shared_constructor(
    value: Any,
    name: str | None = None,
    strict: bool = False,
    allow_downcast: bool | None = None,
    borrow: bool = False,
    shape: Any = None,
    broadcastable: Any = None,
    like: type[GpuArrayType] = CudaNdarrayType,
    **_: Any,
) -> GpuArraySharedVariable:
    """Return a shared variable on the device; raises TypeError for values that stay on the host."""
    if isinstance(value, _ARRAYS):
        array = value if borrow else value.copy()
        like = CudaNdarrayType if isinstance(value, gi.CudaNdarray) else GpuArrayType
    elif isinstance(value, np.ndarray) and (value.dtype == np.float32 or like is GpuArrayType):
        array = device_type(str(value.dtype), (), like).array_class(value, device=settings.device())
    else:
        raise TypeError(f"expected a float32 array, got {type(value).__name__}")
    known = broadcastable if broadcastable is not None else shape
    lengths = (None,) * array.ndim if known is None else known
    return GpuArraySharedVariable(
        type=device_type(str(array.dtype), lengths, like), value=array, strict=strict,
        allow_downcast=allow_downcast, name=name,
    )  # fmt: skip
