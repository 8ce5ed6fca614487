"""``python -m gpuinterop`` is the console script ``gpuinterop``."""

import sys

from gpuinterop.cli import main

if __name__ == "__main__":
    sys.exit(main())
