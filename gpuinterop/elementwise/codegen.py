"""The description of an elementwise kernel, and its source code. Equal descriptions give equal source code."""

from __future__ import annotations

from dataclasses import dataclass

from gpuinterop.arrays.dtypes import STORAGE as _STORAGE
from gpuinterop.arrays.dtypes import WORKING as _WORKING
from gpuinterop.jit.texts import NAMESPACE, kernel_text, nan_signs, program

# Raw bits of elements, which kernels only move.
_BITS = {name: name for name in ("u8", "u16", "u32", "u64", "u128")}
STORAGE, WORKING = _STORAGE | _BITS, _WORKING | _BITS

# Stands for a loop dtype if the body needs the address of the element instead of its value.
ADDRESS = "*"


@dataclass(frozen=True)
class Body:
    """A computation on single elements.

    The inputs are `a0`, `a1`, ... in the working type of their `loop_in` dtype. The statements assign the
    results to `o0`, `o1`, ..., which are rounded to their `loop_out` dtype.

    Attributes
    ----------
    name : part of the kernel's symbol; letters, digits, underscores.
    loop_in, loop_out : names of the dtypes of the computation.
    statements : CUDA C++ statements.
    declared, defined : declaration and definition of a function that the statements call. The definition
        follows the kernel, so that its names cannot collide with names in the kernel.
    once : run the statements for existing elements only. Otherwise threads past the end compute on repeated
        or uninitialized values and discard the results. That is faster, and safe for statements without
        side effects.
    keeps_signs : the results are operands, or differ from them by their signs only, so that the sign of a NaN
        is kept in float16 too. Implied if the statements read signs.
    """

    name: str
    loop_in: tuple[str, ...]
    loop_out: tuple[str, ...]
    statements: str
    declared: str = ""
    defined: str = ""
    once: bool = False
    keeps_signs: bool = False


@dataclass(frozen=True)
class KernelSpec:
    """A body, the dtypes of its operands in memory, and one class of layouts.

    Attributes
    ----------
    stored : dtype name of every operand in memory, inputs first. "u8" to "u128" are raw bits.
    modes : one letter for each operand, see kernels/access.cuh. T, t: a tile transposes it, t: unaligned.
    layout : "flat", "rows", "general" or "tile".
    ndim : number of dimensions beyond those that the layout class iterates over itself.
    vector : elements per access.
    unroll : accesses (flat), rows (rows) or elements (general) per thread.
    tile : edge of the tile, 0 elsewhere.
    across : elements per access of the operands that a tile transposes.
    skew : rows start where the first result's address divides by as many elements; 1: where they start.
    threads : threads of a block.
    """

    body: Body
    stored: tuple[str, ...]
    modes: str
    layout: str
    ndim: int
    vector: int
    unroll: int
    tile: int = 0
    across: int = 1
    skew: int = 1
    threads: int = 256

    @property
    def symbol(self) -> str:
        """The kernel's name, which shows the spec in a profile."""
        types = "_".join(self.stored)
        return (
            f"{self.body.name}__{types}__{self.modes}_{self.layout}{self.ndim}"
            f"_v{self.vector}u{self.unroll}"
            f"{f'_a{self.across}' if 'T' in self.modes else ''}"
            f"{f'_s{self.skew}' if self.skew > 1 else ''}"
            f"{f'_t{self.threads}' if self.threads != 256 else ''}"
        )


def _apply(body: Body, stored: tuple[str, ...], symbol: str) -> str:
    """Return the source code of the function that the kernel calls for every element."""
    n = len(body.loop_in)
    storage = [STORAGE[name] for name in stored]
    parameters = [
        f"const {t}* a{i}" if loop == ADDRESS else f"{t} s{i}"
        for i, (t, loop) in enumerate(zip(storage, body.loop_in, strict=False))
    ]
    parameters += [f"{t}& r{j}" for j, t in enumerate(storage[n:])]
    lines = [f"GI_FN void {symbol}_apply({', '.join(parameters)}) {{"]
    for i, loop in enumerate(body.loop_in):
        if loop == ADDRESS:
            continue
        working = WORKING[loop]
        lines.append(f"  const {working} a{i} = gi_to<{working}>(s{i});")
    lines += [f"  {WORKING[loop]} o{j};" for j, loop in enumerate(body.loop_out)]
    lines.append(f"  {body.statements}")
    for j, loop in enumerate(body.loop_out):
        value = f"o{j}"
        # Round as NumPy's loop does before any cast of the result.
        if WORKING[loop] != STORAGE[loop]:
            value = f"gi_to<{STORAGE[loop]}>({value})"
        lines.append(f"  r{j} = gi_to<{storage[n + j]}>({value});")
    lines.append("}")
    return "\n".join(lines)


def _definitions(spec: KernelSpec, symbol: str) -> dict[str, object]:
    """Return the macros that the kernel's text uses; their names begin with GI_."""
    n = len(spec.body.loop_in)
    operands = range(len(spec.stored))

    def entries(chosen: list[int]) -> str:
        mode = [{"T": "CX"[spec.across == 1], "t": "U"}.get(m, m) for m in spec.modes]
        return " ".join(f"DO({i}, {STORAGE[spec.stored[i]]}, {mode[i]})" for i in chosen)

    tiled = [i for i in operands if spec.modes[i] in "Tt"]
    direct = [i for i in operands if i < n and i not in tiled]
    results = [i for i in operands if i >= n]
    call = ", ".join(f"r{i} e.at(k)" for i in operands)
    call_tiled = ", ".join(f"r{i}{'[0]' if i in tiled else ' e'}.at(k)" for i in operands)
    return {
        "NAME": symbol,
        "PARAMS": f"{symbol}_arguments",
        "K": len(spec.stored),
        "ND": spec.ndim,
        "V": spec.vector,
        "U": spec.unroll,
        "THREADS": spec.threads,
        "TILE": spec.tile,
        "ACROSS": spec.across,
        "SKEW": spec.skew,
        "LOADS(DO)": entries(direct),
        "STORES(DO)": entries(results),
        "LEAD(DO)": entries((results or direct)[:1]),
        "TILED(DO)": entries(tiled),
        "CALL(e, k)": f"{symbol}_apply({call});",
        "CALL_TILED(e, k)": f"{symbol}_apply({call_tiled});",
        "WHERE(live)": "if (live)" if spec.body.once else "",
    }


MATH = ("elementwise/math.cuh", "elementwise/digamma.cuh")


def _kernel(spec: KernelSpec) -> str:
    symbol = spec.symbol
    definitions = _definitions(spec, symbol)
    return "\n".join((
        _apply(spec.body, spec.stored, symbol),
        *(f"#define GI_{name} {value}" for name, value in definitions.items()),
        f'#line 1 "{spec.layout}.cuh"',
        kernel_text(f"elementwise/{spec.layout}.cuh"),
        *(f"#undef GI_{name.partition('(')[0]}" for name in definitions),
    ))  # fmt: skip


def _needs_math(body: Body) -> bool:
    return not _needs_indexing(body) and (
        "gi_" in body.statements or any(t.startswith("complex") for t in body.loop_in)
    )


def _needs_indexing(body: Body) -> bool:
    return "gi_place" in body.statements


def render(*specs: KernelSpec) -> str:
    """Return the program of one or more kernels."""
    keep = any(s.body.keeps_signs or nan_signs(s.body.statements) for s in specs)
    texts = ["elementwise/access.cuh"]
    if any(_needs_indexing(spec.body) for spec in specs):
        texts.insert(0, "elementwise/indexing.cuh")
    if any(_needs_math(spec.body) for spec in specs):
        texts = [*MATH, *texts]
    parts = [program({"NAN_SIGNS": int(keep)}, *map(kernel_text, texts))]
    for spec in specs:
        parts += filter(None, [spec.body.declared, f"namespace {NAMESPACE} {{", _kernel(spec), "}"])
    # Kernels with the same body share one definition.
    parts += dict.fromkeys(spec.body.defined for spec in specs if spec.body.defined)
    return "\n".join(parts)
