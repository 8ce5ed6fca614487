"""Devices, for now their names alone; streams and memory come with the driver layer.

Relied on elsewhere: Device(.type, .index, .type_code), device(spec), default_device(),
from_codes(type_code, index), as_stream(handle, device).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from gpuinterop.errors import DeviceError


class Device:
    __slots__ = ("index", "type")

    def __init__(self, type: str, index: int) -> None:
        self.type = type
        self.index = index

    @property
    def type_code(self) -> int:
        return 1 if self.type == "cpu" else 2

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return "cpu" if self.type == "cpu" else f"cuda:{self.index}"

    __repr__ = __str__


@cache
def from_codes(type_code: int, index: int) -> Device:
    return Device("cpu" if type_code == 1 else "cuda", index)


def default_device() -> Device:
    return from_codes(1, 0)


def device(spec: Any = None) -> Device:
    if spec is None:
        return default_device()
    if isinstance(spec, Device):
        return spec
    if spec == "cpu":
        return from_codes(1, 0)
    raise DeviceError(where="device", expected="'cpu'", got=repr(spec), fix="use 'cpu'")


def as_stream(handle: Any, device: Device) -> Any:
    raise DeviceError(where="stream", expected="a CUDA device", got="none", fix="use 'cpu'")
