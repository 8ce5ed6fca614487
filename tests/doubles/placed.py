"""NumPy arrays at chosen places of memory."""

import numpy as np


def placed(host, offset=1):
    """A copy of an array that begins `offset` bytes past a multiple of 64, by default at no element's place."""
    host = np.asarray(host)
    raw = np.zeros(host.nbytes + 192, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    found = raw[start : start + host.nbytes].view(host.dtype).reshape(host.shape)
    found[...] = host
    return found
