"""The memory of this process."""

import resource
from pathlib import Path


def resident_bytes() -> int:
    """The bytes of the process that are in main memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
