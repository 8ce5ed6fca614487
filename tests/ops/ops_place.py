"""Whether these tests run on the fake driver (see conftest.py); apart, so that tests can import it."""

import os

FAKE = os.environ.get("GPUINTEROP_TEST_FAKE") == "1"
