"""The mode that compiles functions for the device."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.compile.mode import OPT_FAST_RUN, predefined_modes
from pytensor.compile.sharedvalue import shared_constructor
from pytensor.configdefaults import config

import gpuinterop as gi

from . import rewrites, settings  # noqa: F401 (`rewrites` registers its rewrites)
from .device_variables import current_type
from .linker import GpuLinker, GpuMode
from .lowering import elementwise, indexing, shapes  # noqa: F401 (they register lowerings)
from .shared import device_shared_constructor

# PyTensor fuses elementwise operations into reductions for its C code only, and before they can move to the device.
_REWRITES = OPT_FAST_RUN.excluding("local_careduce_fusion")
GPU = GpuMode(GpuLinker(), _REWRITES.including("gpu"))
HOST = GpuMode(GpuLinker(), _REWRITES.including("gpu_host"))
predefined_modes["GPU"] = GPU
for _array in (gi.CudaNdarray, gi.GpuArray):
    shared_constructor.register(_array)(device_shared_constructor)

_before: tuple[Any, ...] | None = None
_precision_before: str | None = None


def use(
    device: Any = "cuda", *, any_dtype: bool = False, capture: bool = True,
    product_precision: str | None = None,
) -> None:  # fmt: skip
    """Compile functions for a device by default, and put shared float32 variables there.

    ``capture=False``: functions on a GPU run their operations one by one, and replay no CUDA graphs.
    `product_precision` is passed to `gpuinterop.set_product_precision`.
    """
    global _before, _precision_before
    if product_precision is not None:
        replaced = gi.set_product_precision(product_precision)
        _precision_before = _precision_before or replaced
    if _before is None:
        _before = config.mode, config.floatX, shared_constructor.dispatch(np.ndarray)
    host_constructor = _before[2]
    settings.choose(gi.device(device), any_dtype, capture)
    kind = current_type()

    def constructor(value: Any, name: str | None = None, **options: Any) -> Any:
        stays = options.pop("target", "") == "cpu" or not (any_dtype or value.dtype == np.float32)
        if stays:
            return host_constructor(value, name=name, **options)
        return device_shared_constructor(value, name, **options, like=kind)

    shared_constructor.register(np.ndarray)(constructor)
    config.mode = GPU
    if not any_dtype:
        config.floatX = "float32"


def unuse() -> None:
    """Undo `use`."""
    global _before, _precision_before
    if _precision_before is not None:
        gi.set_product_precision(_precision_before)
        _precision_before = None
    if _before is not None:
        config.mode, config.floatX, constructor = _before
        shared_constructor.register(np.ndarray)(constructor)
        _before = None
