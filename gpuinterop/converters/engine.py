"""The judgement of other libraries' objects, in one place for conversions, operands and constructors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuinterop.converters import registry

__all__ = ["refuse_foreign"]


def refuse_foreign(obj: Any, where: str) -> None:
    """Raise the error that `judge` of the library's converter has for `obj`, in the name of `where`.

    Return None if the converter has no objection, or if `obj` belongs to no known library. The core calls
    this for every object that is not plain, and after an import by a protocol has failed.
    """
    entry = registry.find_backend(obj)
    judge = None if entry is None else getattr(entry.module, "judge", None)
    # As if copies were allowed, because the caller has no `copyif` that the fix could name.
    plan = None if judge is None else judge(obj, True)
    if plan is not None and not plan.shared:
        raise replace(plan, where=where).exception()
