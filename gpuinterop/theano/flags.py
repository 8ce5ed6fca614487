"""THEANO_FLAGS and .theanorc: the settings of old programs, and their meaning in gpuinterop."""

from __future__ import annotations

import configparser
import os
import warnings
from collections.abc import Mapping
from pathlib import Path

# Flags that are accepted, with their defaults.
KNOWN = {
    "device": "cpu", "floatX": "float64", "mode": "Mode", "profile": "False", "allow_gc": "True",
    "force_device": "False", "print_active_device": "True", "optimizer": "fast_run",
    "exception_verbosity": "low", "on_unused_input": "raise", "warn_float64": "ignore", "cast_policy": "custom",
}  # fmt: skip
# The last four are PyTensor's flags too.
PYTENSORS = tuple(KNOWN)[8:]


def read_flags(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the flags of .theanorc, overridden by those of THEANO_FLAGS; warn about unknown ones."""
    environment = os.environ if environment is None else environment
    found: dict[str, str] = {}
    for name in environment.get("THEANORC", "~/.theanorc").split(os.pathsep):
        found |= _read_file(Path(name).expanduser())
    for part in filter(None, (p.strip() for p in environment.get("THEANO_FLAGS", "").split(","))):
        key, _, value = part.partition("=")
        found[key.strip()] = value.strip()
    for key in found:
        if key not in KNOWN:
            warn(f"Theano's flag {key} has no effect in gpuinterop")
    return KNOWN | {key: value for key, value in found.items() if key in KNOWN}


def warn(text: str) -> None:
    """Warn, and name the line of the program, which imports `theano`, calls `install` or sets a flag."""
    folder = str(Path(__file__).parent) + os.sep
    # PyTensor needs Python 3.12, which has the option.
    warnings.warn(text, skip_file_prefixes=(folder,))  # type: ignore[call-overload]


def _read_file(path: Path) -> dict[str, str]:
    """Return the flags in a file, as they are written: `%` and names in parentheses have no meaning."""
    if not path.is_file():
        return {}
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    try:
        parser.read_string(text)
    except configparser.ParsingError as error:
        number = getattr(error, "lineno", None) or error.errors[0][0]
        raise ValueError(
            f"{path}, line {number}: expected [section] or name = value, got {text.split(chr(10))[number - 1]!r}; "
            "write [global] above the flags, and each flag as name = value, such as floatX = float32"
        ) from None
    return {
        ("" if section == "global" else f"{section}.") + key: value
        for section in parser.sections()
        for key, value in parser.items(section)
    }


def read_bool(flags: Mapping[str, str], name: str) -> bool:
    """Read a boolean flag."""
    text = flags[name].lower()
    if text not in _TRUE + _FALSE:
        raise ValueError(f"{name}={flags[name]}: expected True or False")
    return text in _TRUE


def device_of(text: str) -> tuple[str, bool]:
    """Return gpuinterop's name of a device, and whether arrays have any dtype (Theano's second backend)."""
    for prefix, any_dtype in (("gpu", False), ("cuda", True)):
        rest = text.removeprefix(prefix)
        if text.startswith(prefix) and (not rest or rest.isdigit()):
            return f"cuda:{rest or 0}", any_dtype
    if text == "cpu":
        return "cpu", False
    fix = ""
    if text.startswith("opencl"):
        fix = ", because no function runs on an OpenCL device; run it on the cpu and share its arrays: "
        fix += "gpuinterop.to(x, 'pyopencl', queue=queue)"
    raise ValueError(f"device={text}: expected cpu, gpu, gpuN, cuda or cudaN{fix}")


_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_MODES = (
    "Mode",
    "FAST_RUN",
    "FAST_COMPILE",
    "DebugMode",
    "DEBUG_MODE",
    "ProfileMode",
    "PROFILE_MODE",
)
_OPTIMIZERS = ("fast_run", "fast_compile", "None")


def mode_of(flags: Mapping[str, str]) -> tuple[str, bool, bool]:
    """Return the optimizer of `mode` and `optimizer`, whether functions are checked, and whether they are profiled.

    ``FAST_COMPILE`` optimizes little, ``DebugMode`` compares every operation with itself on the host, and
    ``ProfileMode`` is ``profile=True``.
    """
    mode, optimizer = flags["mode"], flags["optimizer"]
    if mode not in _MODES:
        raise ValueError(f"mode={mode}: expected {', '.join(_MODES[:-1])} or {_MODES[-1]}")
    if optimizer not in _OPTIMIZERS:
        raise ValueError(f"optimizer={optimizer}: expected fast_run, fast_compile or None")
    profiled = mode.startswith("P") or read_bool(flags, "profile")
    return "fast_compile" if mode == "FAST_COMPILE" else optimizer, mode.startswith("D"), profiled
