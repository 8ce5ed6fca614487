"""The error for names of Theano that gpuinterop does not have, with the replacement of each."""

from __future__ import annotations

import importlib.abc
import sys
from typing import Any

_RANDOM = "pytensor.tensor.random, which draws on the host"
_IMAGES = "pytensor.tensor.signal on the host, or PyTorch on shared memory"
_KERNELS = "gpuinterop.RawKernel, or gpuinterop.pytensor.KernelOp"
# By name, or by the longest beginning of a name; docs/old-programs.md has the same table.
_INSTEAD = {
    "theano.sparse": "pytensor.sparse, on the host",
    "theano.typed_list": "pytensor.typed_list",
    "theano.tensor.inplace": "theano.tensor: compiled graphs work in place where they can",
    "theano.tensor.raw_random": _RANDOM,
    "theano.sandbox.cuda.dnn": _IMAGES,
    "theano.sandbox.neighbours": _IMAGES,
    "theano.tensor.signal": _IMAGES,
    "theano.tensor.nnet.conv": _IMAGES,
    "theano.tensor.nnet": "the operations of theano.tensor that define it",
    "theano.Param": "a value in each call: inputs have no default values",
    "theano.compile.Param": "a value in each call: inputs have no default values",
    "theano.sandbox.cuda.GpuConv": _IMAGES,
    "theano.sandbox.cuda.GpuCorr": _IMAGES,
    "theano.sandbox.cuda.GpuDownsample": _IMAGES,
    "theano.sandbox.cuda.nvcc_compiler": _KERNELS,
    "theano.sandbox.gpuarray.basic_ops.GpuKernelBase": _KERNELS,
    "theano.sandbox.gpuarray.GpuKernelBase": _KERNELS,
    "theano.tensor.nnet.abstract_conv": _IMAGES,
    "theano.tensor.nnet.neighbours": _IMAGES,
    "theano.gof.local_optimizer": "pytensor.graph.rewriting.basic.node_rewriter",
    "theano.config": "PYTENSOR_FLAGS, if pytensor.config has it",
    "theano.misc.pkl_utils": "pickle",
    "theano.tensor.opt": "pytensor.tensor.rewriting",
    "theano.gof.opt": "pytensor.graph.rewriting",
    "theano.sandbox.cuda.opt": "gpuinterop.pytensor.lower",
}


def explain(name: str) -> str:
    """Return the message of an error."""
    known = max((start for start in _INSTEAD if name.startswith(start)), key=len, default=None)
    fix = f"use {_INSTEAD[known]}" if known else "look for the name in pytensor"
    return f"{name} is missing in gpuinterop; {fix} (see docs/old-programs.md)"


class Finder(importlib.abc.MetaPathFinder):
    """Finds no module. It is the last finder, and raises for those of ``theano``."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Raise if the module's package is gpuinterop's."""
        if getattr(sys.modules.get(name.partition(".")[0]), "__gpuinterop__", False):
            # Without `name=`: `from theano import x` would replace the message of an error that names theano.x.
            raise ModuleNotFoundError(explain(name))
