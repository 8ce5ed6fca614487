"""Find the symbol of a kernel in machine code by the kernel's name in the source code."""

from __future__ import annotations

import re
import struct

from ..errors import CompileError

__all__ = ["kernels_in", "symbol_of"]

_CUDA = 190  # e_machine of a cubin
_SYMBOLS, _FUNCTION, _ENTRY = 2, 2, 0x10  # a symbol table; a function's type; a kernel's flag
_ENTRY_OF_PTX = re.compile(rb"\.entry\s+([\w$]+)")


def kernels_in(code: bytes) -> list[str] | None:
    """Return the symbols of all kernels in a cubin or PTX, None for other data."""
    if code.startswith(b"\x7fELF"):
        try:
            return _kernels_of(code)
        except (struct.error, ValueError, IndexError):
            return None  # not a valid cubin: the driver will report an error
    if b".version" in code:
        return sorted({found.decode() for found in _ENTRY_OF_PTX.findall(code)})
    return None


def _kernels_of(cubin: bytes) -> list[str] | None:
    (machine,) = struct.unpack_from("<H", cubin, 18)
    if cubin[4] != 2 or machine != _CUDA:  # 64 bits
        return None
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count = struct.unpack_from("<HH", cubin, 58)
    # Of each section: type, offset, bytes, and the section that holds its names.
    sections = [struct.unpack_from("<4xI16xQQI", cubin, table + size * i) for i in range(count)]
    found = set()
    for kind, offset, length, names in sections:
        if kind != _SYMBOLS:
            continue
        start = sections[names][1]
        for at in range(offset, offset + length, 24):
            name, info, other = struct.unpack_from("<IBB", cubin, at)
            if info & 15 == _FUNCTION and other & _ENTRY:
                end = cubin.index(b"\0", start + name)
                found.add(cubin[start + name : end].decode())
    return sorted(found)


def symbol_of(name: str, code: bytes, source: str) -> str:
    """Return the symbol of the kernel `name`: the name itself, or its only mangled form.

    C++ adds the types of the parameters to the name of a kernel that is not ``extern "C"``.
    """
    kernels = kernels_in(code)
    if kernels is None or name in kernels:
        return name
    forms = [kernel for kernel in kernels if kernel.startswith(f"_Z{len(name)}{name}")]
    if len(forms) == 1:
        return forms[0]
    if forms:
        got = f"{len(forms)} kernels called {name}: {', '.join(forms)}"
        fix = "pass one of these symbols as the name"
    else:
        got = ", ".join(map(_readable, kernels)) or "no kernel"
        fix = "pass one of these names" if kernels else f"declare {name} __global__"
    error = CompileError(
        where=f"compiling {name}.cu", expected=f"one kernel called {name} in the source code",
        got=got, fix=fix,
    )  # fmt: skip
    error.source = source
    raise error


def _readable(symbol: str) -> str:
    form = re.match(r"_Z(\d+)", symbol)
    return symbol[form.end() :][: int(form[1])] if form else symbol
