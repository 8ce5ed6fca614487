"""The description of one elementwise kernel: frozen values that identify it completely."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ADDRESS", "Body", "KernelSpec"]

# In place of a loop dtype: the body gets the address of the element, not its value.
ADDRESS = "*"


@dataclass(frozen=True)
class Body:
    """A computation on single elements.

    Inputs arrive as `a0`, `a1`, ... in the working type of their `loop_in` dtype, results are
    assigned to `o0`, `o1`, ... and rounded to their `loop_out` dtype.

    Attributes
    ----------
    name : part of the kernel's symbol; letters, digits, underscores.
    loop_in, loop_out : dtype names that the computation is done in.
    statements : CUDA C++ statements.
    declared, defined : a function that the statements call: its declaration, and behind the kernel,
        where it cannot affect generated code, its definition with all that this needs.
    once : the statements run for the elements that there are, and for nothing else. Without it
        threads behind the end compute on repeated or unset values whose results are thrown away,
        which is quicker, and harmless as long as statements only compute.
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
    """A body on operands of given storage, for one class of layouts.

    Attributes
    ----------
    stored : dtype name of every operand in memory, inputs first. "u8" to "u128" mean raw bits.
    modes : one letter per operand, see kernels/access.cuh; T marks an operand turned in a tile.
    layout : "flat", "rows", "general" or "tile".
    ndim : dimensions beside those that the layout class walks itself.
    vector : elements per access.
    unroll : accesses (flat), rows (rows) or elements (general) per thread.
    wide : 64-bit index arithmetic.
    tile : edge of the tile, 0 elsewhere.
    threads : of a block.
    loop : a block goes on behind the end of the grid (flat).
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
    loop: bool = False

    @property
    def symbol(self) -> str:
        """The name of the kernel, from which a reader of a profile sees the spec."""
        types = "_".join(self.stored)
        return (
            f"{self.body.name}__{types}__{self.modes}_{self.layout}{self.ndim}"
            f"_v{self.vector}u{self.unroll}{'_i64' if self.wide else ''}"
            f"{f'_t{self.threads}' if self.threads != 256 else ''}{'_loop' if self.loop else ''}"
        )
