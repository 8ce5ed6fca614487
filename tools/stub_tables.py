"""Tables of make_stub.py: suppressed lines of the core's stub, classes of `to`, undeclared members."""

from __future__ import annotations

# Lines of the core's stub that break a rule of Python's types on purpose; comments do not survive parsing.
SUPPRESSED = {
    # An array that compares by element cannot be hashed.
    "    __hash__: None": "assignment",
    "    def __eq__(self, other: Any, /) -> GpuArray: ...": "override",
    "    def __ne__(self, other: Any, /) -> GpuArray: ...": "override",
    # A class could derive from np.float32 and from one of the others, but none does.
    "    def astype(self, dtype: Float32, order: str='C', copy: bool=True) -> Self: ...": "overload-overlap",
    # An in-place operator keeps the class, while an addition of a CudaNdarray returns a CudaNdarray.
    **{
        f"    def __i{name}__(self, other: Any, /) -> Self: ...": "misc"
        for name in ("add", "sub", "mul", "mod", "floordiv", "truediv", "matmul")
    },
    "    def __ipow__(self, other: Any, modulus: None=None, /) -> Self: ...": "misc",
}

# The classes that `to` returns. Libraries that have no types for type checkers are not listed.
CLASSES = {
    "numpy": "np.ndarray[Any, np.dtype[Any]]",
    "torch": "torch.Tensor",
    "cupy": "cupy.ndarray",
    "jax": "jax.Array",
    "tvm_ffi": "tvm_ffi.Tensor",
    "warp": "warp.array[Any]",
    "tensorflow": "tensorflow.Tensor",
    "pyopencl": "pyopencl.array.Array",
    "buffer": "memoryview",
}

# Members of every class that a stub does not declare. A declared __setattr__ would mean that any
# attribute may be set.
UNDECLARED = {
    "__doc__", "__module__", "__new__", "__weakref__", "__dict__", "__dictoffset__", "__setattr__",
    "__delattr__", "__buffer__", "__release_buffer__",
}  # fmt: skip
