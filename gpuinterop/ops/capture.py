"""Captured sequences: operations recorded once and replayed with one call.

On CUDA a capture is a CUDA graph. On "cpu" it is the list of the calls, so that a program behaves
alike on both: nothing is computed while a block is recorded, everything at each replay.
"""

from __future__ import annotations

import reprlib
import threading
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuinterop import _core
from gpuinterop.array_inputs import as_input_array
from gpuinterop.error_context import resolve_device
from gpuinterop.errors import ArgumentTypeError, CaptureError, GpuInteropError, ShapeError
from gpuinterop.layout import core_view
from gpuinterop.ops import output_arrays
from gpuinterop.ops.expression_graph import constant_key
from gpuinterop.ops.operand_conversion import is_foreign_array, speaks

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["Capture", "capture"]


def _fixed_key(value: Any) -> Any:
    """Return a key that is equal for values of one type and exactly the same value, now and later.

    The key keeps a copy of what a list, set, dict or NumPy array holds. Other values that cannot be
    hashed are compared by identity.
    """
    kind = type(value)
    if isinstance(value, dict):
        return kind, *((_fixed_key(k), _fixed_key(v)) for k, v in value.items())
    if isinstance(value, (tuple, list)):
        return kind, *map(_fixed_key, value)
    if isinstance(value, set):
        return kind, constant_key(frozenset(value))
    if isinstance(value, np.ndarray):
        return kind, value.dtype, value.shape, value.tobytes()
    try:
        return constant_key(value)
    except TypeError:
        return kind, id(value)  # `Capture.inputs` keeps the value alive


def _refuse_shared(inputs: tuple[Any, ...], arguments: tuple[Any, ...]) -> None:
    """Refuse to write into an input what another one, in the same memory, holds or gets as well."""
    pairs = [p for p in zip(inputs, arguments, strict=True) if isinstance(p[0], _core.Array)]
    for (one, to_one), (other, to_other) in combinations(pairs, 2):
        kept = to_one is one and to_other is other
        same = one is other and to_one is to_other
        if not (kept or same) and _core._may_overlap(one, other):
            raise CaptureError(
                where="Capture",
                expected="inputs in memory of their own, for other arguments than the captured ones",
                got="two inputs that share memory: one would overwrite the other",
                fix="capture it with copies, such as capture(function, x, x.copy())",
            )


def _ready(own: Any, given: Any, others: list[Any]) -> Any:
    """What is written into an input beside others: a copy where these are written before, or could be
    although this one is refused.
    """
    if not others:
        return given
    seen = given if isinstance(given, _core.Array) else None
    if seen is None and speaks(given):
        seen = as_input_array(given, None, "Capture")
    if seen is not None:
        seen = core_view(seen)
        near = seen.device.type == "cpu" or seen.device == own.device
        if (
            near
            and seen.dtype == own.dtype
            and not any(_core._may_overlap(o, seen) for o in others)
        ):
            return given
    made = output_arrays.new_like(own, own.shape, own.dtype, "Capture")
    _write(made, given, own)
    return made


def _write(place: Any, value: Any, own: Any) -> None:
    try:
        place[...] = value
    except GpuInteropError as error:
        raise type(error)(
            where="Capture",
            expected=f"an argument that fits the captured {own.dtype} array: {error.expected}",
            got=error.got,
            fix=error.fix,
        ) from None


class _Leaver:
    """Ends a capture that its thread did not: thread-local values go when the thread ends, in it."""

    __slots__ = ("recorder",)

    def __init__(self, recorder: _core.Recorder) -> None:
        self.recorder = recorder

    def __del__(self) -> None:
        self.recorder.leave()


_of_thread = threading.local()


class Capture:
    """A recorded sequence of operations; made by `gpuinterop.capture`.

    Attributes
    ----------
    inputs : the example arguments, if it was made from a function. Write into them before a replay.
    outputs : what the function returned. The arrays stay the same; each replay overwrites them.
    """

    def __init__(self, device: Any = None) -> None:
        self.device = resolve_device(device, "capture")
        self.inputs = ()
        self.outputs: Any = None
        self._recorder = _core.Recorder(self.device.type_code, self.device.index)

    def __enter__(self) -> Capture:
        self._recorder.begin()
        _of_thread.leaver = _Leaver(self._recorder)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._recorder.end()
            else:
                self._recorder.leave()
        finally:
            leaver = getattr(_of_thread, "leaver", None)
            if leaver is not None and leaver.recorder is self._recorder:
                _of_thread.leaver = None

    def __del__(self) -> None:
        recorder = getattr(self, "_recorder", None)
        if recorder is not None:
            recorder.leave()

    @property
    def inputs(self) -> tuple[Any, ...]:
        return self._inputs

    @inputs.setter
    def inputs(self, inputs: tuple[Any, ...]) -> None:
        # What is not an array is fixed by the recording, also if the object changes later.
        self._fixed = [None if isinstance(x, _core.Array) else _fixed_key(x) for x in inputs]
        self._inputs = inputs

    @property
    def nodes(self) -> int:
        """How many kernels, copies and fills a replay runs; on "cpu", how many calls."""
        return int(self._recorder.nodes)

    def replay(self) -> None:
        """Run the recorded operations on the current stream, on what their arrays hold now.

        Inside another capture of the same device nothing runs: they become part of that one.
        """
        self._recorder.replay()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Replay and return the outputs, which are the same arrays every time.

        Arguments other than the captured arrays are copied into those first.
        """
        if named:
            raise ArgumentTypeError(
                where="Capture",
                expected="arguments by position: a capture knows their places, not their names",
                got=f"{next(iter(named))}= by name",
                fix="pass all of them in the order in which they were captured",
            )
        if arguments:
            self._accept(arguments)
        self._recorder.replay()
        return self.outputs

    def _accept(self, arguments: tuple[Any, ...]) -> None:
        if len(arguments) != len(self.inputs):
            raise ArgumentTypeError(
                where="Capture",
                expected=f"{len(self.inputs)} arguments, as when it was captured, or none",
                got=str(len(arguments)),
                fix="pass all of them, or write into capture.inputs",
            )
        changed: list[tuple[Any, Any]] = []
        for own, fixed, given in zip(self.inputs, self._fixed, arguments, strict=True):
            if not isinstance(own, _core.Array):
                if _fixed_key(given) != fixed:
                    raise CaptureError(
                        where="Capture",
                        expected=f"{reprlib.repr(own)}, which is fixed in the recorded operations",
                        got=reprlib.repr(given),
                        fix="pass arrays as arguments of their own, and a number that changes as a 0-d array",
                    )
                continue
            if given is own:
                continue
            try:
                shape = tuple(given.shape if hasattr(given, "shape") else np.shape(given))
            except (TypeError, ValueError):  # of ragged lists, for one
                shape = None
            if shape != tuple(own.shape):
                raise ShapeError(
                    where="Capture",
                    expected=f"an argument of shape {own.shape}, as captured",
                    got=f"{reprlib.repr(given)}, which has none" if shape is None else str(shape),
                    fix="capture the function again for other shapes",
                )
            changed.append((own, given))
        _refuse_shared(self.inputs, arguments)
        # What can be refused is, before anything is written.
        changed.sort(key=lambda pair: not core_view(pair[0]).readonly)
        values = [
            _ready(own, given, [other for other, _ in changed if other is not own])
            for own, given in changed
        ]
        for (own, _), value in zip(changed, values, strict=True):
            _write(own, value, own)

    def __repr__(self) -> str:
        count = self.nodes
        many = "1 node" if count == 1 else f"{count} nodes"
        state = many if self._recorder.ready else "not recorded"
        return f"<Capture on {self.device}: {state}>"


def capture(
    function: Callable[..., Any] | None = None,
    *arguments: Any,
    device: Any = None,
    **named: Any,
) -> Capture:
    """Record operations into a graph that one call replays.

    ``with capture() as graph:`` records the block; ``f = capture(function, *arguments)`` records
    one call of the function, and ``f(*arguments)`` replays it, copying arguments other than the
    captured ones into these. `device` is by default that of the first array among the arguments, or
    the default device; work on another one is refused inside. Nothing is computed, and results have
    no values, until the first replay. The graph keeps every
    array that it uses alive, and memory made inside it belongs to it: results keep their place and
    each replay overwrites them; copy those that the next one must not change. A capture that is
    replayed inside of another one becomes part of it. A replay gives the same bits as the operations one by one.

    Whatever would wait for the device is illegal inside: `item`, ``numpy.asarray``, printing.

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
    if function is not None and not callable(function):
        raise ArgumentTypeError(
            where="capture",
            expected="a function, or nothing for a with-block",
            got=repr(function),
            fix="capture(function, x, y), or: with capture() as graph",
        )
    if named:
        name = next(iter(named))
        raise ArgumentTypeError(
            where="capture",
            expected="the function's arguments by position, and no keyword but device",
            got=f"{name}=",
            fix=f"fix it in the function: capture(lambda x: function(x, {name}=...), x)",
        )
    for argument in arguments:
        if is_foreign_array(argument):
            raise ArgumentTypeError(
                where="capture",
                expected="arrays of this library, whose memory every replay reads, or constants",
                got=f"an object of type {type(argument).__module__}.{type(argument).__qualname__}",
                fix="share or copy it first: gpuinterop.asarray(x)",
            )
    if device is None:
        device = next((a.device for a in arguments if isinstance(a, _core.Array)), None)
    graph = Capture(device)
    if function is None:
        if arguments:
            raise ArgumentTypeError(
                where="capture",
                expected="a function before its arguments",
                got="None",
                fix="capture(function, x, y), or: with capture() as graph",
            )
        return graph
    graph.inputs = arguments
    with graph:
        graph.outputs = function(*arguments)
    return graph
