"""The description of an elementwise kernel, from which its source code is generated."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ADDRESS", "Body", "KernelSpec"]

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
    """

    name: str
    loop_in: tuple[str, ...]
    loop_out: tuple[str, ...]
    statements: str
    declared: str = ""
    defined: str = ""
    once: bool = False


@dataclass(frozen=True)
class KernelSpec:
    """A body, the dtypes of its operands in memory, and one class of layouts.

    Attributes
    ----------
    stored : dtype name of every operand in memory, inputs first. "u8" to "u128" are raw bits.
    modes : one letter for each operand, see kernels/access.cuh. T: an operand that a tile transposes.
    layout : "flat", "rows", "general" or "tile".
    ndim : number of dimensions beyond those that the layout class iterates over itself.
    vector : elements per access.
    unroll : accesses (flat), rows (rows) or elements (general) per thread.
    wide : 64-bit index arithmetic.
    tile : edge of the tile, 0 elsewhere.
    threads : threads of a block.
    """

    body: Body
    stored: tuple[str, ...]
    modes: str
    layout: str
    ndim: int
    vector: int
    unroll: int
    wide: bool
    tile: int = 0
    threads: int = 256

    @property
    def symbol(self) -> str:
        """The kernel's name, which shows the spec in a profile."""
        types = "_".join(self.stored)
        return (
            f"{self.body.name}__{types}__{self.modes}_{self.layout}{self.ndim}"
            f"_v{self.vector}u{self.unroll}{'_i64' if self.wide else ''}"
            f"{f'_t{self.threads}' if self.threads != 256 else ''}"
        )
