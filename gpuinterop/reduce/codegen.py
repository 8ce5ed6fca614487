"""Generates the source code and the launches of reduction kernels, around the files in reduce/kernels."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpuinterop import _core
from gpuinterop.arrays.dtypes import STORAGE, WORKING
from gpuinterop.elementwise.codegen import MATH
from gpuinterop.jit import kernel_text
from gpuinterop.jit.compiler import loaded_kernels, multiprocessors
from gpuinterop.jit.texts import NAMESPACE, nan_signs, program

from .launch import Launch, Operand, choose_launch

INPUT, OUTPUT, SCRATCH = _core.Slot.Input, _core.Slot.Output, _core.Slot.Scratch
ACCUMULATOR_BYTES = 32  # of the largest one


class Ending(NamedTuple):
    """The results of one shape: `gi_posts<n>` computes them from reduced values and extras.

    Attributes
    ----------
    reduced : the expressions of the reduced values.
    extras, outputs : their positions.
    once : the kernel reduces the values again for each result of another shape, and stores them once.
    """

    reduced: list[str]
    extras: range
    outputs: range
    once: bool


@dataclass(frozen=True)
class Recipe:
    """A reduction to generate: map, accumulator and results.

    The expressions of elements and of the reduced value come from the generator of expressions.

    Parameters
    ----------
    inputs : dtype names of the arrays that are read.
    value : C++ type of a mapped element.
    map : expression of x0, x1, ... (elements of the inputs).
    op : an accumulator of kernels/accumulators.cuh, "FloatSum<float>".
    outputs : dtype names of the results.
    extras : dtype names of further inputs that have the shape of the result.
    ends : what follows; empty if the reduced value is the result.
    support : device functions that the expression and the ends call.
    declared, defined : functions outside the generator's namespace, which the support calls.
    """

    inputs: tuple[str, ...]
    value: str
    map: str
    op: str
    outputs: tuple[str, ...]
    extras: tuple[str, ...] = ()
    ends: tuple[Ending, ...] = ()
    support: str = ""
    declared: str = ""
    defined: str = ""

    @property
    def ordered(self) -> bool:
        return self.op.startswith("ArgExtreme")


def _params(recipe: Recipe, launch: Launch) -> str:
    kept, red = len(launch.geometry.kept), len(launch.geometry.red)
    ins, outs, extras = len(recipe.inputs), len(recipe.outputs), len(recipe.extras)
    # The extras' pointers follow those of the inputs, and their strides those of the results.
    return (
        "struct Params {\n"
        f"  const void* in[{ins + extras}];\n"
        f"  void* out[{outs}];\n"
        "  void* scratch;\n  void* block_counters;\n"
        "  double count, parameter;\n"
        "  long long n_out, n_red, splits, chunk, tiles;\n"
        f"  long long kept[{kept}], red[{red}];\n"
        f"  long long kept_strides[{ins}][{kept}], red_strides[{ins}][{red}];\n"
        f"  long long out_strides[{outs + extras}][{kept}];\n"
        "};\n"
    )


def _store(recipe: Recipe, launch: Launch) -> str:
    """Return gi_store, which computes the offsets of a result and of the extras, and runs posts and conversions."""
    ins, outs, extras = len(recipe.inputs), len(recipe.outputs), len(recipe.extras)
    lines = [
        "__device__ inline void gi_store(const Params& gi_p, Index gi_o, const Acc& gi_acc) {",
        f"  Index gi_at[{outs + extras}] = {{}};",
        "  gi_offsets(gi_p.kept, gi_p.out_strides, gi_o, gi_at);",
        "  const auto gi_r = Op::finish(gi_acc, gi_p.count, gi_p.parameter);",
    ]

    def stored(j: int, value: str) -> str:
        c_type = STORAGE[recipe.outputs[j]]
        return f"  (({c_type}*)gi_p.out[{j}])[gi_at[{j}]] = gi_to<{c_type}>({value});"

    for n, end in enumerate(recipe.ends):
        args = [
            f"gi_read(((const {STORAGE[recipe.extras[e]]}*)gi_p.in[{ins + e}])[gi_at[{outs + e}]])"
            for e in end.extras
        ]
        results = [f"o{j}" for j in end.outputs]
        lines.append("  if (gi_o == 0) {" if end.once else "  {")
        lines += [f"  {WORKING[recipe.outputs[j]]} o{j};" for j in end.outputs]
        lines.append(f"  gi_posts{n}({', '.join([*end.reduced, *args, *results])});")
        lines += [stored(j, f"o{j}") for j in end.outputs]
        lines.append("  }")
    if not recipe.ends:
        lines += [stored(j, "gi_r") for j in range(outs)]
    lines.append("}")
    return "\n".join(lines) + "\n"


def render(recipe: Recipe, launch: Launch) -> str:
    """Return a whole translation unit for `recipe` on layouts like `launch`'s."""
    c_types = [STORAGE[d] for d in recipe.inputs]
    fixed = [not any(strides) for strides in launch.geometry.red_strides]
    # Along a row such an input has one element; in the columns of a thread it may have several.
    fixed_values = launch.vector if launch.mode == "columns" else 1

    def entries(is_fixed: bool) -> list[str]:
        return [
            f"X({i}, {c_type}, {step})"
            for i, (c_type, step) in enumerate(zip(c_types, launch.steps, strict=True))
            if fixed[i] == is_fixed
        ]

    def members(is_fixed: bool, size: object) -> str:
        return " ".join(f"{k} v{i}[{size}];" for i, k in enumerate(c_types) if fixed[i] == is_fixed)

    fetched = "".join(
        f"  const auto x{i} = gi_read({f'gi_f.v{i}[gi_k % {fixed_values}]' if fixed[i] else f'gi_q.v{i}[gi_k]'});\n"
        for i in range(len(c_types))
    )
    peeled = next((one for one in entries(False) if one.endswith(", 1)")), "")
    values = {
        "INS": len(recipe.inputs), "KEPT": len(launch.geometry.kept), "RED": len(launch.geometry.red),
        "BLOCK": launch.threads, "TEAM": launch.team, "FINISH_TEAM": launch.finish_team, "VEC": launch.vector,
        "APART": int(launch.apart), "RAGGED": int(launch.ragged), "ROWS": launch.rows, "UNROLL": launch.unroll,
        "NAN_SIGNS": nan_signs(recipe.map, recipe.support), "ONE_LAUNCH": int(launch.one_launch),
        "PEEL": int(launch.peel), "PEELED(X)": peeled,
        "INPUTS(X)": " ".join(entries(False)), "FIXED(X)": " ".join(entries(True)),
    }  # fmt: skip
    # Users' functions are outside the namespace.
    declared = f"}}\n{recipe.declared}\nnamespace {NAMESPACE} {{" if recipe.declared else ""
    text = program(
        values,
        f"typedef {'long long' if launch.wide else 'int'} Index;",
        _params(recipe, launch),
        kernel_text("reduce/accumulators.cuh"),
        *map(kernel_text, MATH if "gi_" in recipe.support else ()),
        declared,
        recipe.support,
        f"typedef {recipe.value} Value;\ntypedef {recipe.op} Op;\ntypedef Op::Acc Acc;",
        f"template <int VEC>\nstruct Packs {{ {members(False, 'VEC')} }};",
        f"struct Fixed {{ {members(True, fixed_values)} }};",
        "template <int VEC>",
        "__device__ inline Value gi_map(const Packs<VEC>& gi_q, const Fixed& gi_f, int gi_k) {",
        f"{fetched}  return gi_to<Value>({recipe.map});\n}}",
        kernel_text("reduce/common.cuh"),
        *map(kernel_text, ("last_block.cuh",) if launch.one_launch else ()),
        _store(recipe, launch),
        kernel_text(f"reduce/{launch.mode}.cuh"),
    )
    return f"{text}{recipe.defined}\n"


def pack_params(recipe: Recipe, launch: Launch, parameter: float = 0.0) -> bytes:
    """Return the bytes of the kernel's Params with null pointers."""
    g = launch.geometry
    pointers = len(recipe.inputs) + len(recipe.extras) + len(recipe.outputs) + 2
    numbers = [g.n_out, g.n_red, launch.splits, launch.chunk, launch.tiles, *g.kept, *g.red]
    for strides in (*g.kept_strides, *g.red_strides, *g.out_strides):
        numbers += strides
    head = struct.pack(f"<{pointers}q2d", *[0] * pointers, g.n_red, parameter)
    return head + struct.pack(f"<{len(numbers)}q", *numbers)


# ---- launches -------------------------------------------------------------------------------------


class Patch(NamedTuple):
    """Where to write an address into the parameters: that of an operand, plus `shift` bytes; see ops::Patch."""

    offset: int
    slot: _core.Slot
    operand: int = 0
    shift: int = 0


class KernelLaunch(NamedTuple):
    """A launch for `_core.make_plan`: the bytes of the parameters have null addresses."""

    kernel: Any
    grid: tuple[int, int]
    threads: int  # of a block
    params: bytes
    patches: Sequence[Patch]


class Output(NamedTuple):
    """A result for `_core.make_plan` and its companions. A plan does not keep the class alive.

    cls : None for the class of a result for the first operand.
    counted : the first axis has as many elements as the `work` of `_core.make_plan` counts.
    """

    cls: Any
    dtype: int
    shape: tuple[int, ...]
    counted: bool = False


# For each operand: the source of its address (slot and index), and the planner's description.
Placed = tuple[_core.Slot, int, Operand]
Launches = tuple[list[KernelLaunch], int]


def launches_for(
    device: int,
    recipe: Recipe,
    shape: Sequence[int],
    axes: Sequence[int],
    inputs: Sequence[Placed],
    outs: Sequence[Placed],
    extras: Sequence[Placed] = (),
    *,
    parameter: float = 0.0,
    scratch_at: int = 0,
) -> Launches:
    """Return the launches of a reduction for `_core.make_plan`, and the scratch bytes used from `scratch_at` on.

    Strides of `out` arrays and extras are over the full shape; those along reduced axes are ignored.
    """
    after = [*outs, *extras]
    launch = choose_launch(
        shape, axes, [o for _, _, o in inputs], [o.strides for _, _, o in after],
        ordered=recipe.ordered, multiprocessors=multiprocessors(device),
    )  # fmt: skip
    g = launch.geometry
    if g.n_out == 0:
        return [], 0
    # In the order of the pointers in Params.
    with_shifts = [*zip(inputs, g.in_shifts, strict=True), *zip(after, g.out_shifts, strict=True)]
    n = len(inputs)
    operands = [*with_shifts[:n], *with_shifts[n + len(outs) :], *with_shifts[n : n + len(outs)]]
    patches = [
        Patch(8 * i, slot, index, shift * operand.itemsize)
        for i, ((slot, index, operand), shift) in enumerate(operands)
    ]
    scratch_bytes, at = 0, 8 * len(operands)
    if launch.splits > 1:
        patches.append(Patch(at, SCRATCH, shift=scratch_at))
        scratch_bytes = ACCUMULATOR_BYTES * g.n_out * launch.splits
    if launch.one_launch:
        patches.append(Patch(at + 8, _core.Slot.BlockCounters))
    names = [f"gi_reduce_{launch.mode}", f"gi_finish_{launch.mode}"]
    names = names if launch.finish_grid else names[:1]
    functions = loaded_kernels(device, render(recipe, launch), names)
    params = pack_params(recipe, launch, parameter)
    grids = [launch.grid, (launch.finish_grid, 1)] if launch.finish_grid else [launch.grid]
    launches = [
        KernelLaunch(function, grid, launch.threads, params, patches)
        for function, grid in zip(functions, grids, strict=True)
    ]
    return launches, scratch_bytes
