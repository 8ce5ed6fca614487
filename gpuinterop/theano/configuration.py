"""theano.config over PyTensor's configuration."""

from __future__ import annotations

import sys
from typing import Any

from pytensor.compile.debug.debugmode import DebugMode
from pytensor.compile.mode import OPT_FAST_COMPILE, OPT_NONE
from pytensor.configdefaults import config

import gpuinterop as gi
from gpuinterop import pytensor as backend
from gpuinterop.pytensor.linker import GpuLinker

from . import profiles
from .flags import KNOWN, PYTENSORS, device_of, mode_of, read_bool, warn
from .missing import explain


class Configuration:
    """The flags by name; names that Theano and PyTensor share are PyTensor's."""

    def __init__(self, flags: dict[str, str]) -> None:
        self.__dict__.update(device=flags["device"], force_device=read_bool(flags, "force_device"), on_gpu=False,
                             print_active_device=read_bool(flags, "print_active_device"))  # fmt: skip
        config.floatX = flags["floatX"]
        modes, profiled = _modes(flags)
        self.__dict__.update(modes=modes, mode_name=flags["mode"])
        if profiled:
            profiles.install()
            config.profile = True
        config.allow_gc = read_bool(flags, "allow_gc")
        for name in PYTENSORS:
            if flags[name] != KNOWN[name]:
                setattr(config, name, flags[name])
        self.use(self.device, force=self.force_device)

    def __getattr__(self, name: str) -> Any:
        if name == "mode":
            return self.mode_name
        if name in _SECTIONS:
            return _Section(self, name)
        if hasattr(config, _pytensors(name)):
            return getattr(config, _pytensors(name))
        if name in _UNUSED:
            return _UNUSED[name]
        if name.startswith("warn."):
            return False
        raise AttributeError(explain(f"theano.config.{name}"))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            raise AttributeError(
                f"theano.config.{name} is set by THEANO_FLAGS or .theanorc, before the program runs"
            )
        if name == "optimizer":
            config.mode = self.mode_with(optimizer=value)
            return
        if not hasattr(config, _pytensors(name)):
            warn(f"theano.config.{name} has no effect in gpuinterop")
        if name == "mode":
            config.mode, profiled = self.mode_of(value)
            self.__dict__["mode_name"] = value
            name, value = "profile", profiled or config.profile
        if name == "profile" and value:
            profiles.install()
        setattr(config, _pytensors(name), value)

    def mode_of(self, mode: Any) -> tuple[Any, bool]:
        """Return PyTensor's mode for a name of Theano's, and whether functions are profiled."""
        if not isinstance(mode, str):
            return mode, False
        if mode == self.mode_name:
            return config.mode, False
        modes, profiled = _modes(KNOWN | {"mode": mode})
        return modes[self.on_gpu], profiled

    def mode_with(self, linker: Any = None, optimizer: Any = "default") -> Any:
        """Return the mode of ``theano.Mode``. The linker has no effect: it chose between C and Python."""
        if optimizer is not None and not isinstance(optimizer, str):
            return type(backend.GPU)(GpuLinker(), optimizer)
        name = "fast_run" if optimizer == "default" else str(optimizer)
        return _modes(KNOWN | {"optimizer": name})[0][self.on_gpu]

    def use(self, device: str, force: bool = False, **_: Any) -> None:
        """Compile for a device, and print its name. Without a GPU functions stay on the host, unless `force`."""
        where, any_dtype = device_of(device)
        floats = config.floatX
        if where != "cpu" and not force and not gi.devices()[1:]:
            self._say(f"No GPU for device={device}: functions run on the cpu")
            where = "cpu"
        if where == "cpu":
            backend.unuse()
            config.mode = self.modes[0]
        else:
            chosen = gi.device(where)
            backend.use(chosen, any_dtype=any_dtype)
            config.mode = self.modes[1]
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


# The values of flags without an effect, until a program sets them. PyTensor computes no test values.
_UNUSED = {"compute_test_value": "off", "unittests.rseed": 666, "warn.ignore_bug_before": "0.7"}
# The beginnings of Theano's flags with a dot in their names.
_SECTIONS = frozenset(
    "blas cmodule compile cuda dnn dnn.conv experimental gcc gpuarray gpuelemwise lib nvcc numpy optdb profiling scan "
    "tensor traceback unittests vm warn DebugMode NanGuardMode ProfileMode".split()
)


class _Section:
    """The flags of a section, such as those of ``theano.config.blas``."""

    def __init__(self, flags: Configuration, name: str) -> None:
        self.__dict__.update(_flags=flags, _name=name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._flags, f"{self._name}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._flags, f"{self._name}.{name}", value)


def _pytensors(name: str) -> str:
    """Return PyTensor's name of a flag."""
    return name.replace(".", "__")


def _modes(flags: dict[str, str]) -> tuple[tuple[Any, Any], bool]:
    """Return PyTensor's modes for the host and for the device, and whether functions are profiled."""
    optimizer, checked, profiled = mode_of(flags)
    if checked:
        return (DebugMode(), DebugMode(optimizer=backend.GPU.provided_optimizer)), profiled
    if optimizer == "fast_run":
        return (backend.HOST, backend.GPU), profiled
    query = OPT_NONE if optimizer == "None" else OPT_FAST_COMPILE
    host, device = (
        type(mode)(GpuLinker(), rewrites)
        for mode, rewrites in ((backend.HOST, query), (backend.GPU, query.including("gpu")))
    )
    return (host, device), profiled
