"""PyTensor's BLAS Ops on device arrays. alpha and beta are numbers on the host."""

from __future__ import annotations

from typing import Any

from pytensor.tensor import blas
from pytensor.tensor.math import Dot

import gpuinterop as gi

from ..device_op import printed
from . import computes, device_inputs, lower, record_as


def _out(cell: Any, shape: tuple[int, ...]) -> Any:
    """Return the result of the last call, if its memory can be reused."""
    old = cell[0]
    return old if old is not None and old.shape == shape and old.flags.c_contiguous else None


def _scalar(node: Any) -> Any:
    """Return the function that reads alpha and beta, 0-d arrays on the host."""
    return complex if node.outputs[0].type.dtype.startswith("complex") else float


def _addend(function: Any, op: Any, node: Any) -> Any:
    inplace, scalar = op.inplace, _scalar(node)

    def run(inputs: Any, outputs: Any) -> None:
        z, alpha, x, y, beta = inputs
        alpha, beta = scalar(alpha), scalar(beta)
        if z.ndim == 2 and z.shape != (x.shape[0], y.shape[1]):
            added = z * beta if beta else gi.zeros_like(z)  # Gemm broadcasts one to the other
            outputs[0][0] = added + function(x, y, alpha=alpha)
            return
        out = z if inplace else _out(outputs[0], z.shape)
        if beta == 0:
            outputs[0][0] = function(x, y, alpha=alpha, out=out)
        else:
            outputs[0][0] = function(x, y, z, alpha=alpha, beta=beta, out=out)

    return run


@lower.register(blas.Gemm)
def _gemm(op: Any, node: Any) -> Any:
    return _addend(gi.gemm, op, node)


@lower.register(blas.Gemv)
def _gemv(op: Any, node: Any) -> Any:
    return _addend(gi.gemv, op, node)


@lower.register(blas.Dot22)
@lower.register(Dot)
def _dot22(op: Any, node: Any) -> Any:
    def run(inputs: Any, outputs: Any) -> None:
        x, y = inputs
        outputs[0][0] = gi.dot(x, y, out=_out(outputs[0], (*x.shape[:-1], *y.shape[1:])))

    return run


@lower.register(blas.Dot22Scalar)
def _dot22scalar(op: Any, node: Any) -> Any:
    scalar = _scalar(node)

    def run(inputs: Any, outputs: Any) -> None:
        x, y, alpha = inputs
        out = _out(outputs[0], (x.shape[0], y.shape[1]))
        outputs[0][0] = gi.gemm(x, y, alpha=scalar(alpha), out=out)

    return run


@computes(blas.BatchedDot)
def _batched_dot(op: Any, x: Any, y: Any) -> Any:
    return gi.matmul(x, y)


@device_inputs.register(blas.Gemm)
@device_inputs.register(blas.Gemv)
def _operands(op: Any, node: Any) -> list[int]:
    return [0, 2, 3]


record_as("values", blas.Gemm, blas.Gemv, blas.Dot22, blas.Dot22Scalar, Dot, blas.BatchedDot)


@printed.register(blas.Gemm)
@printed.register(blas.Gemv)
def _print_product(host: Any, name: str) -> str:
    return f"{name}{{{'inplace' if host.inplace else 'no_inplace'}}}"


# Ops that can write to their first input.
INPLACE = (blas.Gemm, blas.Gemv)

if hasattr(blas, "Ger"):  # before PyTensor 3.3.7

    @lower.register(blas.Ger)
    def _ger(op: Any, node: Any) -> Any:
        def run(inputs: Any, outputs: Any) -> None:
            a, alpha, x, y = inputs
            outputs[0][0] = gi.ger(x, y, a, alpha=float(alpha), out=_out(outputs[0], a.shape))

        return run

    record_as("values", blas.Ger)
    device_inputs.register(blas.Ger, _operands)
