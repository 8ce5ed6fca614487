"""Whether this process runs on the fake driver; read when the first test module imports it."""

import os

FAKE = "fakecuda" in os.environ.get("GPUINTEROP_LIBCUDA", "")
