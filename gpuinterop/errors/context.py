"""Re-raises errors under the name of the called function instead of the failed step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import gpuinterop.devices as devices
from gpuinterop.errors import GpuInteropError, OutOfMemoryError


@contextmanager
def reraise_from(where: str) -> Iterator[None]:
    """Re-raise errors of the block, NumPy's MemoryError among them, with `where` as the called function."""
    try:
        yield
    except GpuInteropError as error:
        raise error.changed(where=where) from None
    except MemoryError as error:
        free, total = devices.mem_info("cpu")
        raise OutOfMemoryError(
            where=where,
            expected="enough free host memory",
            got=f"{free} bytes free of {total}; NumPy: {str(error) or 'MemoryError'}",
            fix="process the data in smaller parts",
        ) from None
