"""Print the include directory of a header that a wheel carries: ``find_header.py dlpack/dlpack.h``."""

import sys
import sysconfig
from pathlib import Path

# In the order of preference: where the build requirements put their headers.
PLACES = (
    "nvidia/cu*/include",
    "nvidia/cuda_runtime/include",
    "tvm_ffi/include",
    "tvm_ffi/3rdparty/dlpack/include",
)


def main() -> int:
    name = sys.argv[1]
    roots = [*sys.path, *sysconfig.get_paths().values()]
    for root in dict.fromkeys(filter(None, roots)):
        for place in PLACES:
            for include in sorted(Path(root).glob(place), reverse=True):
                if (include / name).is_file():
                    print(include)
                    return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
