"""Fail with a reason when this interpreter cannot run the core."""

import sys
import sysconfig

if not sys.platform.startswith("linux"):
    sys.exit(
        "gpuinterop: Linux is supported only: the core opens libcuda.so by the system's linker.\n"
        f"  got: {sys.platform}\n"
        "  fix: use it in a Linux container or, on Windows, in WSL 2"
    )
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    sys.exit(
        "gpuinterop: free-threaded Python is not supported: the core's array type relies on the GIL.\n"
        f"  got: {sys.executable} ({sys.version.split()[0]}, built with --disable-gil)\n"
        "  fix: build with the ordinary interpreter of the same version"
    )
