"""theano.misc.pycuda_init: starts PyCUDA in the primary context, which gpuinterop uses too."""

try:
    import pycuda.autoprimaryctx  # noqa: F401 (its import makes the context current)
except ImportError:
    pycuda_available = False
else:
    pycuda_available = True
