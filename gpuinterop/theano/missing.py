"""The error for names of Theano that gpuinterop does not have, with the replacement of each."""

from __future__ import annotations

from typing import Any, NoReturn

_RANDOM = "pytensor.tensor.random, which draws on the host"
_IMAGES = (
    "theano.tensor.nnet.conv2d and theano.tensor.signal.pool.pool_2d, or PyTorch on shared memory"
)
_KERNELS = "gpuinterop.RawKernel, or gpuinterop.pytensor.KernelOp"
_CONTEXTS = "the one device that device= chooses"
# By name, or by the longest beginning of a name; docs/reference/theano-names.md has the same table.
_INSTEAD = {
    "theano.tensor.raw_random": _RANDOM,
    "theano.sandbox.cuda.dnn": _IMAGES,
    "theano.sandbox.neighbours": _IMAGES,
    "theano.tensor.signal": _IMAGES,
    "theano.tensor.nnet.conv": _IMAGES,
    "theano.tensor.nnet": "the operations of theano.tensor that define it",
    "theano.sandbox.cuda.GpuConv": _IMAGES,
    "theano.sandbox.cuda.GpuCorr": _IMAGES,
    "theano.sandbox.cuda.GpuDownsample": _IMAGES,
    "theano.sandbox.cuda.nvcc_compiler": _KERNELS,
    "theano.sandbox.gpuarray.init_dev": _CONTEXTS,
    "theano.sandbox.gpuarray.reg_context": _CONTEXTS,
    "theano.sandbox.gpuarray.get_context": _CONTEXTS,
    "theano.sandbox.gpuarray.basic_ops.GpuKernelBase": _KERNELS,
    "theano.sandbox.gpuarray.GpuKernelBase": _KERNELS,
    "theano.tensor.nnet.abstract_conv": _IMAGES,
    "theano.tensor.nnet.neighbours": _IMAGES,
    "theano.gof.local_optimizer": "pytensor.graph.rewriting.basic.node_rewriter",
    "theano.config": "PYTENSOR_FLAGS, if pytensor.config has it",
    "theano.tensor.opt": "pytensor.tensor.rewriting",
    "theano.gof.opt": "pytensor.graph.rewriting",
    "theano.sandbox.cuda.opt": "gpuinterop.pytensor.lower",
}


def explain(name: str) -> str:
    """Return the message of an error."""
    known = max((start for start in _INSTEAD if name.startswith(start)), key=len, default=None)
    fix = f"use {_INSTEAD[known]}" if known else "look for the name in pytensor"
    return f"{name} is missing in gpuinterop; {fix} (see docs/reference/theano-names.md)"


def unavailable(module: str, names: str) -> dict[str, Any]:
    """Return classes that programs can import and test for with `isinstance`, and that raise when they are called."""
    return {
        name: type(name, (), {"__new__": _refusal(f"{module}.{name}")}) for name in names.split()
    }


def _refusal(name: str) -> Any:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(explain(name))

    return refuse
