"""theano.config over PyTensor's configuration."""

from __future__ import annotations

import sys
from typing import Any

from pytensor.configdefaults import config

import gpuinterop as gi
from gpuinterop import pytensor as backend

from .flags import device_of, read_bool

__all__ = ["Configuration"]


class Configuration:
    """The flags by name; names that Theano and PyTensor share are PyTensor's."""

    def __init__(self, flags: dict[str, str]) -> None:
        self.__dict__.update(device=flags["device"], force_device=read_bool(flags["force_device"]), on_gpu=False,
                             print_active_device=read_bool(flags["print_active_device"]))  # fmt: skip
        config.floatX = flags["floatX"]
        if read_bool(flags["profile"]):
            config.profile = True
        config.allow_gc = read_bool(flags["allow_gc"])
        self.use(self.device, force=self.force_device)

    def __getattr__(self, name: str) -> Any:
        return getattr(config, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(config, name, value)

    def use(self, device: str, force: bool = False, **_: Any) -> None:
        """Compile for a device. Without a GPU functions stay on the host, and a line says so, unless `force`."""
        where, any_dtype = device_of(device)
        floats = config.floatX
        if where != "cpu" and not force and not gi.devices()[1:]:
            self._say(f"No GPU for device={device}: functions run on the cpu")
            where = "cpu"
        if where == "cpu":
            backend.unuse()
            config.mode = backend.HOST
        else:
            chosen = gi.device(where)
            backend.use(chosen, any_dtype=any_dtype)
            name = gi.devices.device_properties(chosen)["name"]
            self._say(
                f"Using device {device}: {name}"
                if any_dtype
                else f"Using gpu device {chosen.index}: {name}"
            )
        config.floatX = floats
        self.__dict__["on_gpu"] = where != "cpu"

    def _say(self, line: str) -> None:
        if self.print_active_device:
            print(line, file=sys.stderr)
