"""The command line of every example: the device on which it runs."""

from __future__ import annotations

import argparse

import gpuinterop


def device_asked_for(about: str | None) -> gpuinterop.Device:
    """Return the device named on the command line, or the default device."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("place", nargs="?", metavar="DEVICE", help="cpu, cuda, cuda:1 [default]")
    parser.add_argument("--device", metavar="DEVICE", help="the same")
    asked = parser.parse_args()
    if asked.place and asked.device:
        parser.error("pass either a device or --device, not both")
    try:
        name = asked.place or asked.device
        return gpuinterop.device(name) if name else gpuinterop.default_device()
    except gpuinterop.DeviceError as error:
        parser.error(str(error))
