"""theano.config over PyTensor's configuration."""

from __future__ import annotations

import sys
from typing import Any

from pytensor.configdefaults import config

import gpuinterop as gi
from gpuinterop import pytensor as backend

from .flags import device_of, truth

__all__ = ["Configuration"]


class Configuration:
    """The flags by name; names that Theano and PyTensor share are PyTensor's."""

    def __init__(self, flags: dict[str, str]) -> None:
        self.__dict__.update(device=flags["device"], force_device=truth(flags["force_device"]), on_gpu=False,
                             print_active_device=truth(flags["print_active_device"]))  # fmt: skip
        config.floatX = flags["floatX"]
        if truth(flags["profile"]):
            config.profile = True
        config.allow_gc = truth(flags["allow_gc"])
        if self.device != "cpu":
            self.use(self.device, force=self.force_device)

    def __getattr__(self, name: str) -> Any:
        return getattr(config, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(config, name, value)

    def use(self, device: str, force: bool = False, **_: Any) -> None:
        """Compile for a device; without a GPU for "cpu", unless `force`."""
        where, any_dtype = device_of(device)
        if where != "cpu" and not gi.devices()[1:] and not force:
            where = "cpu"
        chosen, floats = gi.device(where), config.floatX
        backend.use(chosen, any_dtype=any_dtype)
        config.floatX = floats
        self.__dict__["on_gpu"] = chosen.type == "cuda"
        if self.print_active_device:
            print(_device_line(device, chosen, any_dtype), file=sys.stderr)


def _device_line(asked: str, chosen: Any, any_dtype: bool) -> str:
    if chosen.type == "cpu":
        return f"No GPU: device={asked} runs on the cpu"
    name = gi.device_name(chosen) if hasattr(gi, "device_name") else str(chosen)
    return f"Using device {asked}: {name}" if any_dtype else f"Using gpu device {chosen.index}: {name}"
