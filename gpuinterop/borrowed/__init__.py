"""Functions of other libraries, called with gpuinterop arrays on the same memory."""
