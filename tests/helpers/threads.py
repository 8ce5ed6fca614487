"""Calls in other threads."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def in_threads(function: Callable[[Any], Any], given: Iterable[Any]) -> list[Any]:
    """The results for several arguments, each in a thread of its own; an exception is raised here."""
    given = list(given)
    with ThreadPoolExecutor(len(given)) as pool:
        return list(pool.map(function, given))


def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call in another thread, which has ended."""
    return in_threads(lambda _: function(*arguments), [None])[0]
