"""Arrays in GPU memory that processes share, by each mechanism, on the real and on the fake driver."""

import weakref

import numpy as np
from doubles import driver

import gpuinterop as gi

# Of an allocation, larger than the gaps among an opener's mappings, so that the next one has a lower address.
NBYTES = 1 << 26
VALUES = np.arange(24, dtype="float32").reshape(4, 6)


class Memory:
    """Memory of another library."""

    def __init__(self, allocate):
        self.address = allocate(NBYTES)
        weakref.finalize(self, driver.free, self.address)

    def array(self):
        return gi.CudaNdarray.from_pointer(self.address, VALUES.shape, None, self)


MAKERS = {
    "vmm": lambda: gi.shared_empty(NBYTES // 4, device="cuda")[:24].reshape(4, 6),
    "legacy": lambda: Memory(driver.allocate).array(),
    "pool": lambda: Memory(driver.allocate_from_exportable_pool).array(),
}
