"""Build the fake libcuda and print its path, for GPUINTEROP_LIBCUDA."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def library() -> Path:
    """Path of the built library; built again when a source has changed."""
    sources = sorted([*HERE.glob("*.cpp"), *HERE.glob("*.hpp")])
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    target = ROOT / "build" / "fakecuda" / f"libfakecuda-{digest}.so"
    if target.exists():
        return target
    include = subprocess.run(
        [sys.executable, str(ROOT / "native" / "find_header.py"), "cuda.h"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    target.parent.mkdir(parents=True, exist_ok=True)
    # Under another name first: two test processes may build at the same time.
    partial = target.with_suffix(f".{os.getpid()}")
    command = [
        os.environ.get("CXX", "g++"),
        "-std=c++20",
        "-shared",
        "-fPIC",
        "-O1",
        "-g",
        "-pthread",
        "-isystem",
        include,
        str(HERE / "fakecuda.cpp"),
        "-o",
        str(partial),
        "-ldl",
    ]
    subprocess.run(command, check=True)
    partial.replace(target)
    return target


if __name__ == "__main__":
    print(library())
