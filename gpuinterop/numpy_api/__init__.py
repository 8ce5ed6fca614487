"""NumPy's functions and ufuncs of gpuinterop arrays."""
