"""Re-raises errors under the name of the called function instead of the failed step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from gpuinterop.errors import GpuInteropError, OutOfMemoryError


def host_memory() -> tuple[int, int]:
    """Return (free, total) bytes of the machine's memory."""
    page = os.sysconf("SC_PAGE_SIZE")
    return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")


@contextmanager
def reraise_from(where: str) -> Iterator[None]:
    """Re-raise errors of the block, NumPy's MemoryError among them, with `where` as the called function."""
    try:
        yield
    except GpuInteropError as error:
        raise error.changed(where=where) from None
    except MemoryError as error:
        free, total = host_memory()
        raise OutOfMemoryError(
            where=where,
            expected="enough free host memory",
            got=f"{free} bytes free of {total}; NumPy: {str(error) or 'MemoryError'}",
            fix="process the data in smaller parts",
        ) from None
