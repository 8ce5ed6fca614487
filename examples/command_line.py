"""What every example takes on the command line: the device to run on."""

from __future__ import annotations

import argparse

import gpuinterop


def device_asked_for(about: str | None) -> gpuinterop.Device:
    """The device that the words after the program's name mean; without any, the default one."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("place", nargs="?", metavar="DEVICE", help="cpu, cuda, cuda:1 [default]")
    parser.add_argument("--device", metavar="DEVICE", help="the same")
    asked = parser.parse_args()
    if asked.place and asked.device:
        parser.error("a device and --device: one of them is enough")
    try:
        name = asked.place or asked.device
        return gpuinterop.device(name) if name else gpuinterop.default_device()
    except gpuinterop.DeviceError as error:
        parser.error(str(error))
