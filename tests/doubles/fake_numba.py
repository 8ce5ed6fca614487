"""Numba's device arrays, as far as it documents their attributes."""

import types

import numpy as np


class DeviceNDArray:
    """The attributes that Numba documents for its device arrays."""

    __module__ = "numba.cuda.cudadrv.devicearray"

    def __init__(self, shape, strides, dtype, stream=0, gpu_data=None):
        self.shape, self.strides, self.dtype = tuple(shape), tuple(strides), np.dtype(dtype)
        self.size = int(np.prod(self.shape))
        self.stream, self.gpu_data = stream, gpu_data

    @property
    def device_ctypes_pointer(self):
        return types.SimpleNamespace(value=self.gpu_data.device_pointer or None)


class MemoryPointer:
    def __init__(self, context, pointer, size, owner=None):
        self.context, self.device_pointer, self.size, self.owner = context, pointer, size, owner
