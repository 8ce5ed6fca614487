"""Captured sequences: operations recorded once and replayed with one call.

On CUDA a capture is a CUDA graph. On "cpu" it is a list of calls. On both, a block computes nothing
while it is recorded, and everything at each replay.
"""

from __future__ import annotations

import inspect
from itertools import combinations
from typing import Any

import numpy as np

from gpuinterop import _core
from gpuinterop.devices import resolve_device
from gpuinterop.elementwise import results
from gpuinterop.elementwise.operands import is_foreign_array
from gpuinterop.errors import ArgumentTypeError, CaptureError, ShapeError, short_repr, type_name
from gpuinterop.errors.arguments import argument_key, constant_key
from gpuinterop.errors.context import reraise_from

__all__ = ["Capture", "capture"]


def _constant_text(value: Any) -> str:
    """Show a constant; a subclass of float may print different numbers alike."""
    if isinstance(value, float) and type(value) is not float:
        return f"{type(value).__name__} of value {float.__repr__(value)}"
    return short_repr(value)


def _refuse_shared(inputs: tuple[Any, ...], arguments: tuple[Any, ...]) -> None:
    """Raise if a write to an input would change another input in the same memory."""
    pairs = [p for p in zip(inputs, arguments, strict=True) if isinstance(p[0], _core.Array)]
    for (one, to_one), (other, to_other) in combinations(pairs, 2):
        kept = to_one is one and to_other is other
        same = one is other and to_one is to_other
        if not (kept or same) and _core._may_overlap(one, other):
            raise CaptureError(
                where="Capture",
                expected="inputs that do not share memory, for arguments other than the captured ones",
                got="two inputs that share memory: one would overwrite the other",
                fix="capture it with copies, such as capture(function, x, x.copy())",
            )


def _copies_directly(own: Any, arg: Any, changed: list[tuple[Any, Any]]) -> bool:
    if not isinstance(arg, _core.Array) or (arg.dtype, arg.device) != (own.dtype, own.device):
        return False
    return not any(_core._may_overlap(other, arg) for other, _ in changed if other is not own)


def _stage_copy(own: Any, arg: Any) -> Any:
    copy = results.new_like(own, own.shape, own.dtype)
    copy[...] = arg
    return copy


class Capture(_core.Block):
    """A recorded sequence of operations; made by `gpuinterop.capture`.

    Attributes
    ----------
    inputs : the example arguments, if it was made from a function. Write into them before a replay.
    outputs : the result of the function. The arrays stay the same; each replay overwrites them.

    Examples
    --------
    >>> import gpuinterop
    >>> step = gpuinterop.capture(lambda x: x * 2, gpuinterop.ones(2, device="cpu"))
    >>> step(gpuinterop.asarray([3, 4], device="cpu")).tolist()
    [6.0, 8.0]
    """

    def __init__(self, device: Any = None) -> None:
        self.device = resolve_device(device, "capture")
        self.inputs: tuple[Any, ...] = ()
        self.outputs: Any = None
        self._recorder = recorder = _core.Recorder(self.device.type_code, self.device.index)
        super().__init__((recorder.begin, recorder.end, recorder.leave))

    def __del__(self) -> None:
        recorder = getattr(self, "_recorder", None)
        if recorder is not None:
            recorder.leave()

    @property
    def nodes(self) -> int:
        """The number of kernels, copies and fills that a replay runs; on "cpu", of calls."""
        return int(self._recorder.nodes)

    def replay(self) -> None:
        """Run the recorded operations on the current stream, with the current values of their arrays.

        Inside another capture of the same device nothing runs: they become part of that capture.
        """
        self._recorder.replay()

    def __call__(self, *arguments: Any) -> Any:
        """Replay and return the outputs, which are the same arrays every time.

        Arguments other than the captured arrays are copied into those first.
        """
        if arguments:
            self._accept(arguments)
        self._recorder.replay()
        return self.outputs

    def _accept(self, arguments: tuple[Any, ...]) -> None:
        count = len(self.inputs)
        if len(arguments) != count:
            raise ArgumentTypeError(
                where="Capture",
                expected=f"{count} argument{'s' * (count != 1)}, as in the capture, or no arguments",
                got=str(len(arguments)),
                fix="pass all of them, or write into capture.inputs",
            )
        changed: list[tuple[Any, Any]] = []
        for own, arg in zip(self.inputs, arguments, strict=True):
            if not isinstance(own, _core.Array):
                if argument_key(arg, "capture", "captured") != constant_key(own):
                    raise CaptureError(
                        where="Capture",
                        expected=f"{_constant_text(own)}, which is fixed in the recorded operations",
                        got=_constant_text(arg),
                        fix="pass arrays as separate arguments, and a number that changes as a 0-d array",
                    )
            elif arg is not own:
                try:
                    shape = tuple(arg.shape if hasattr(arg, "shape") else np.shape(arg))
                except (TypeError, ValueError):  # for example for ragged lists
                    shape = None
                if shape != tuple(own.shape):
                    raise ShapeError(
                        where="Capture",
                        expected=f"an argument of shape {own.shape}, as captured",
                        got=short_repr(arg) if shape is None else str(shape),
                        fix="capture the function again for other shapes",
                    )
                changed.append((own, arg))
        _refuse_shared(self.inputs, arguments)
        with reraise_from("Capture"):
            # Before the first write, convert arguments that may be refused or that a write would change.
            values = [
                arg
                if len(changed) == 1 or _copies_directly(own, arg, changed)
                else _stage_copy(own, arg)
                for own, arg in changed
            ]
            for (own, arg), value in zip(changed, values, strict=True):
                if value is arg:
                    own[...] = value
                else:  # its copy has been counted
                    _core.copy_into(own, value, where="Capture", uncounted=True)

    def __repr__(self) -> str:
        count = self.nodes
        many = "1 node" if count == 1 else f"{count} nodes"
        state = many if self._recorder.ready else "not recorded"
        return f"<Capture on {self.device}: {state}>"


def _require_fitting(function: Any, arguments: tuple[Any, ...]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of C, without a signature
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise ArgumentTypeError(
            where="capture",
            expected=f"the arguments of the function, {signature}",
            got=f"{len(arguments)}: {error}",
            fix="pass the arrays: capture(f, x)",
        ) from None


def capture(function: Any = None, *arguments: Any, device: Any = None) -> Capture:
    """Record operations into a graph that one call replays.

    - ``with capture() as graph:`` records the block, and ``graph.replay()`` replays it.
    - ``f = capture(function, *arguments)`` records one call of the function, and ``f(*arguments)`` replays it.
      If you pass other arrays, they are first copied into the recorded arrays. Pass keywords in a lambda:
      ``capture(lambda x: f(x, k=2), x)``.

    Results have no values before the first replay, and each replay overwrites them. Copy what you keep. The
    graph keeps every array that it uses alive. A replay gives the same bits as the operations one by one. A
    capture that is replayed inside another capture becomes part of it.

    `device` is by default that of the first array among the arguments, or the default device. Work on another
    device raises an error. So do calls that wait for the device: `item`, ``numpy.asarray``, printing.

    Examples
    --------
    >>> import numpy as np, gpuinterop
    >>> x = gpuinterop.asarray(np.arange(3, dtype="float32"), device="cpu")
    >>> double = gpuinterop.capture(lambda a: a + a, x)
    >>> double().tolist()
    [0.0, 2.0, 4.0]
    >>> x[...] = 5
    >>> double().tolist()
    [10.0, 10.0, 10.0]
    """
    if not callable(function) and (function is not None or arguments):
        raise ArgumentTypeError(
            where="capture",
            expected="a function, or no argument for a with-block",
            got=short_repr(function),
            fix="call capture(function, x, y), or write: with capture() as graph",
        )
    for argument in arguments:
        if is_foreign_array(argument):
            raise ArgumentTypeError(
                where="capture",
                expected="gpuinterop arrays, whose memory every replay reads, or constants",
                got=type_name(argument),
                fix="share or copy it first: gpuinterop.asarray(x)",
            )
        if not isinstance(argument, _core.Array):
            argument_key(argument, "capture", "captured")
    if function is not None:
        _require_fitting(function, arguments)
    if device is None:
        device = next((a.device for a in arguments if isinstance(a, _core.Array)), None)
    graph = Capture(device)
    if function is None:
        return graph
    graph.inputs = arguments
    with graph:
        graph.outputs = function(*arguments)
    return graph
