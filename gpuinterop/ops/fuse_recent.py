"""What a fused function keeps: the traces and kernels that were used last."""

from __future__ import annotations

from typing import Any

__all__ = ["KEPT", "Recent"]

KEPT = 64


class Recent(dict[Any, Any]):
    """A dictionary of what was used last: at least `KEPT` items, and at most twice as many.

    Two generations, because a look-up in the younger one costs nothing beyond that of a dictionary.
    ``recent[key]`` is None where nothing is kept.
    """

    def __init__(self) -> None:
        super().__init__()
        self._older: dict[Any, Any] = {}

    def __missing__(self, key: Any) -> Any:
        value = self._older.pop(key, None)
        if value is not None:
            self[key] = value
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        if len(self) >= KEPT and key not in self:
            self._older = dict(self)  # those that were older are let go
            self.clear()
        super().__setitem__(key, value)

    def held(self) -> int:
        """How many items there are."""
        return len(self) + len(self._older)
