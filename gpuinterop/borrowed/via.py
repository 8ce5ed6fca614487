"""``gi.via.torch.linalg.svd(x)``: another library's function, called with gpuinterop arrays."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from gpuinterop.errors import ArgumentTypeError, MissingNameError, type_name
from gpuinterop.errors.arguments import require_bool
from gpuinterop.exchange import registry

from .loan import LentFunction

# Packages whose functions take the arrays of another library.
_ARRAYS_OF = {"scipy": "numpy", "cupyx": "cupy", "torchvision": "torch", "torchaudio": "torch"}


class Borrowed(LentFunction):
    """A module or a function of another library."""

    def __init__(self, path: str, value: Any, entry: registry.Backend, copyif: bool) -> None:
        super().__init__(entry, value, copyif)
        self._path = path
        self.__doc__ = getattr(value, "__doc__", None)

    def __getattr__(self, name: str) -> Any:
        path = f"{self._path}.{name}"
        if not hasattr(self._value, name) and isinstance(self._value, ModuleType):
            try:
                import_module(path)  # such as scipy.special, which `import scipy` leaves out
            except ModuleNotFoundError:
                pass
        try:
            value = getattr(self._value, name)
        except AttributeError:
            raise MissingNameError(
                where=f"gpuinterop.via.{self._path}",
                expected=f"a name of {self._path}",
                got=repr(name),
                fix=f"look it up in dir({self._path})",
            ) from None
        if isinstance(value, type) or not (callable(value) or isinstance(value, ModuleType)):
            return value  # a class, such as a dtype of NumPy, or a constant
        cls = BorrowedModule if isinstance(value, ModuleType) else Borrowed
        found = cls(path, value, self._entry, self._copyif)
        self.__dict__[name] = found
        return found

    def __dir__(self) -> list[str]:
        return dir(self._value)

    def __reduce__(self) -> tuple[Any, ...]:
        return _look_up, (self._path, self._copyif)

    def __repr__(self) -> str:
        return f"<{self._path}, for gpuinterop arrays>"


class BorrowedModule(Borrowed):
    """A module of another library, which cannot be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse the call."""
        raise ArgumentTypeError(
            where=f"gpuinterop.via.{self._path}",
            expected="a function of this module",
            got="a call of the module",
            fix=f"convert with gpuinterop.to(x, {self._entry.name!r}), or name a function",
        )


class Via:
    """Call another library's function with gpuinterop arrays, on the same memory.

    ``gi.via.torch.linalg.svd(x)`` calls ``torch.linalg.svd``. Arrays among the arguments become arrays of the library,
    and results become gpuinterop arrays. They share their memory, so the library's writes to an argument or to ``out=``
    change the array. A layout or a device that the library cannot share raises; ``gi.via(copyif=True)`` copies instead.
    On a GPU the current stream waits for the library's stream.

    Examples
    --------
    >>> import gpuinterop as gi
    >>> x = gi.asarray([3.0, 1.0, 2.0], device="cpu")
    >>> gi.via.numpy.sort(x).tolist()
    [1.0, 2.0, 3.0]
    """

    def __init__(self, copyif: bool = False) -> None:
        self._copyif = copyif

    def __call__(self, *args: Any, copyif: bool = False) -> Via:
        """Return a `via` whose calls copy arrays that the library cannot share, with ``copyif=True``."""
        if args:
            raise ArgumentTypeError(
                where="via",
                expected="the name of a library and its function, or only copyif=",
                got=", ".join(type_name(arg) for arg in args),
                fix="write gpuinterop.via.torch.sort(x)",
            )
        return Via(require_bool(copyif, "copyif", "via"))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        entry = registry.backend(
            _ARRAYS_OF.get(name, name), f"gpuinterop.via.{name}", packages=_ARRAYS_OF
        )
        package = entry.package.partition(".")[0]
        if name not in (package, *_ARRAYS_OF):  # np, for example, is a name for `to` alone
            raise ArgumentTypeError(
                where=f"gpuinterop.via.{name}",
                expected="the name of a package",
                got=f"{name!r}, which is no package of {entry.name}",
                fix=f"write gpuinterop.via.{package if package != 'builtins' else 'numpy'}",
            )
        module = registry.import_package(entry, name, f"gpuinterop.via.{name}")
        found = BorrowedModule(name, module, entry, self._copyif)
        self.__dict__[name] = found
        return found

    def __reduce__(self) -> str | tuple[Any, ...]:
        return (Via, (True,)) if self._copyif else "via"

    def __dir__(self) -> list[str]:
        names = {entry.package for entry in registry.backends()} | _ARRAYS_OF.keys()
        found = (n for n in names - {"builtins"} if n.isidentifier() and registry.installed(n))
        return sorted(found)

    def __repr__(self) -> str:
        return f"<gpuinterop.via, as in gpuinterop.via.torch.sort(x): {', '.join(dir(self))}>"


via: Callable[..., Via] = Via()


def _look_up(path: str, copyif: bool) -> Any:
    """Return `via`'s module or function of a path, such as "torch.linalg.svd"; pickles call it."""
    found: Any = via(copyif=True) if copyif else via
    for name in path.split("."):
        found = getattr(found, name)
    return found
