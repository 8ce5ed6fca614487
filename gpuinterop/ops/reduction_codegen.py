"""The text of a reduction kernel: a few generated lines around the files in jit/kernels."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuinterop.dtypes import STORAGE, WORKING
from gpuinterop.jit import kernel_text
from gpuinterop.jit.codegen import NAMESPACE
from gpuinterop.ops.reduction_plan import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Recipe",
    "accumulator_bytes",
    "kernel_names",
    "pack_params",
    "pointer_offsets",
    "render",
]


@dataclass(frozen=True)
class Recipe:
    """A reduction to generate: map, accumulator and results.

    What is computed of elements and of the reduced value comes from the generator of expressions.

    Parameters
    ----------
    inputs : dtype names of the arrays that are walked over.
    value : C++ type of a mapped element.
    map : expression of x0, x1, ... (elements of the inputs).
    op : an accumulator of reduce_ops.cuh, "FloatSum<float>".
    outputs : dtype names of the results.
    extras : dtype names of further inputs that have the shape of the result.
    support : device functions that the expression calls, among them `gi_posts` of the reduced value, the
        extras, and references to the results, where these are not the reduced value itself.
    declared, defined : functions outside of the generator's namespace, which the support calls.
    """

    inputs: tuple[str, ...]
    value: str
    map: str
    op: str
    outputs: tuple[str, ...]
    extras: tuple[str, ...] = ()
    posts: bool = False
    support: str = ""
    declared: str = ""
    defined: str = ""

    @property
    def ordered(self) -> bool:
        return self.op.startswith("ArgExtreme")


def kernel_names(plan: Plan) -> list[str]:
    """Names of the kernels to launch one after the other."""
    names = [f"gi_reduce_{plan.mode}", f"gi_finish_{plan.mode}"]
    return names if plan.finish_grid else names[:1]


def _params(recipe: Recipe, plan: Plan) -> str:
    kept, red = len(plan.geometry.kept), len(plan.geometry.red)
    ins, outs, extras = len(recipe.inputs), len(recipe.outputs), len(recipe.extras)
    # C++ has no arrays of length 0.
    extra = (
        f"  const void* extra[{extras}];\n  long long extra_strides[{extras}][{kept}];\n"
        if extras
        else ""
    )
    return (
        "struct Params {\n"
        f"  const void* in[{ins}];\n"
        f"  void* out[{outs}];\n"
        "  void* scratch;\n  void* tickets;\n"
        "  double count, parameter;\n"
        "  long long n_out, n_red, splits, chunk, tiles;\n"
        f"  long long kept[{kept}], red[{red}];\n"
        f"  long long kept_strides[{ins}][{kept}], red_strides[{ins}][{red}];\n"
        f"  long long out_strides[{outs}][{kept}];\n"
        f"{extra}"
        "};\n"
    )


def _store(recipe: Recipe, plan: Plan) -> str:
    """gi_store: the offsets of a result, the posts, the conversions."""
    outs, extras, kept = len(recipe.outputs), len(recipe.extras), len(plan.geometry.kept)
    lines = [
        "__device__ inline void gi_store(const Params& gi_p, Index gi_o, const Acc& gi_acc) {",
        f"  Index gi_at[{outs}] = {{}};",
    ]
    if extras:
        lines.append(f"  Index gi_at_extra[{extras}] = {{}};")
    lines.append("  Index gi_rest = gi_o;")
    for d in range(kept - 1, -1, -1):
        if d:
            lines.append(f"  const Index gi_next{d} = gi_rest / Index(gi_p.kept[{d}]);")
            lines.append(
                f"  const Index gi_digit{d} = gi_rest - gi_next{d} * Index(gi_p.kept[{d}]);"
            )
        else:
            lines.append("  const Index gi_digit0 = gi_rest;")
        lines += [
            f"  gi_at[{j}] += gi_digit{d} * Index(gi_p.out_strides[{j}][{d}]);" for j in range(outs)
        ]
        lines += [
            f"  gi_at_extra[{e}] += gi_digit{d} * Index(gi_p.extra_strides[{e}][{d}]);"
            for e in range(extras)
        ]
        if d:
            lines.append(f"  gi_rest = gi_next{d};")
    lines.append("  const auto gi_r = Op::finish(gi_acc, gi_p.count, gi_p.parameter);")
    results = [f"o{j}" if recipe.posts else "gi_r" for j in range(outs)]
    if recipe.posts:
        given = ["gi_r"]
        given += [
            f"gi_read(((const {STORAGE[dtype]}*)gi_p.extra[{e}])[gi_at_extra[{e}]])"
            for e, dtype in enumerate(recipe.extras)
        ]
        lines += [f"  {WORKING[d]} o{j};" for j, d in enumerate(recipe.outputs)]
        lines.append(f"  gi_posts({', '.join(given + results)});")
    for j, (dtype, value) in enumerate(zip(recipe.outputs, results, strict=True)):
        kind = STORAGE[dtype]
        lines.append(f"  ((({kind}*)gi_p.out[{j}]))[gi_at[{j}]] = gi_to<{kind}>({value});")
    lines.append("}")
    return "\n".join(lines) + "\n"


def render(recipe: Recipe, plan: Plan) -> str:
    """A whole translation unit for `recipe` on layouts like `plan`'s."""
    members = " ".join(f"{STORAGE[d]} v{i}[VEC];" for i, d in enumerate(recipe.inputs))
    listed = " ".join(
        f"X({i}, {STORAGE[d]}, {step})"
        for i, (d, step) in enumerate(zip(recipe.inputs, plan.steps, strict=True))
    )
    fetched = "".join(
        f"  const auto x{i} = gi_read(gi_q.v{i}[gi_k]);\n" for i in range(len(recipe.inputs))
    )
    return "".join(
        [
            f"#define GI_INS {len(recipe.inputs)}\n",
            f"#define GI_KEPT {len(plan.geometry.kept)}\n",
            f"#define GI_RED {len(plan.geometry.red)}\n",
            f"#define GI_BLOCK {plan.threads}\n",
            f"#define GI_TEAM {plan.team}\n",
            f"#define GI_FINISH_TEAM {plan.finish_team}\n",
            f"#define GI_VEC {plan.vector}\n",
            f"#define GI_UNROLL {plan.unroll}\n",
            f"#define GI_ONE_LAUNCH {int(plan.one_launch)}\n",
            f"#define GI_INPUTS(X) {listed}\n",
            kernel_text("device.cuh"),
            f"namespace {NAMESPACE} {{\n",
            f"typedef {'long long' if plan.wide else 'int'} Index;\n",
            _params(recipe, plan),
            kernel_text("rounding.cuh"),
            kernel_text("integers.cuh"),
            kernel_text("prelude.cuh"),
            kernel_text("reduce_ops.cuh"),
            kernel_text("math.cuh") if "gi_" in recipe.support else "",
            f"}}\n{recipe.declared}\nnamespace {NAMESPACE} {{\n" if recipe.declared else "",
            recipe.support,
            f"typedef {recipe.value} Value;\ntypedef {recipe.op} Op;\ntypedef Op::Acc Acc;\n",
            f"template <int VEC>\nstruct Packs {{ {members} }};\n",
            "template <int VEC>\n__device__ inline Value gi_map(const Packs<VEC>& gi_q, int gi_k) {\n",
            fetched,
            f"  return gi_to<Value>({recipe.map});\n}}\n",
            kernel_text("reduce_common.cuh"),
            _store(recipe, plan),
            kernel_text(f"reduce_{plan.mode}.cuh"),
            f"}}\n{recipe.defined}\n",
        ]
    )


def pack_params(
    recipe: Recipe,
    plan: Plan,
    *,
    count: float,
    parameter: float = 0.0,
    extra_strides: Sequence[Sequence[int]] = (),
) -> bytes:
    """The kernel's Params with null pointers; `extra_strides` follow the plan's kept dimensions."""
    g = plan.geometry
    pointers = len(recipe.inputs) + len(recipe.outputs) + 2
    numbers = [g.n_out, g.n_red, plan.splits, plan.chunk, plan.tiles, *g.kept, *g.red]
    for strides in (*g.kept_strides, *g.red_strides, *g.out_strides[: len(recipe.outputs)]):
        numbers += strides
    if recipe.extras:
        numbers += [0] * len(recipe.extras)  # pointers again
        for extra in extra_strides:
            numbers += extra
    return (
        struct.pack(f"<{pointers}q", *[0] * pointers)
        + struct.pack("<2d", count, parameter)
        + struct.pack(f"<{len(numbers)}q", *numbers)
    )


def pointer_offsets(recipe: Recipe, plan: Plan) -> tuple[list[int], list[int], int, list[int]]:
    """Byte offsets in Params of the inputs, the outputs, the scratch memory and the extras.

    The tickets' address follows that of the scratch memory.
    """
    ins, outs, extras = len(recipe.inputs), len(recipe.outputs), len(recipe.extras)
    g = plan.geometry
    kept, red = len(g.kept), len(g.red)
    before_extras = ins + outs + 2 + 2 + 5 + kept + red + ins * (kept + red) + outs * kept
    return (
        [8 * i for i in range(ins)],
        [8 * (ins + j) for j in range(outs)],
        8 * (ins + outs),
        [8 * (before_extras + e) for e in range(extras)],
    )


# sizeof of the accumulators; of those that are templates in sizes of their type.
_SIZES = {"float": 4, "double": 8, "c64": 8, "c128": 16} | {
    f"{letter}{8 * size}": size for letter in "iu" for size in (1, 2, 4, 8)
}
_PLAIN = {"AnyTrue": 4, "AllTrue": 4, "Variance": 16, "ComplexVariance": 24}
_TEMPLATES = {
    "FloatSum": 2, "FloatMean": 2, "FloatNorm": 2, "IntegerSum": 1, "ComplexSum": 4, "Product": 1,
}  # fmt: skip


def accumulator_bytes(recipe: Recipe, *, wide: bool) -> int:
    """sizeof(Acc) of the recipe's operation."""
    name, _, arguments = recipe.op.partition("<")
    if name in _PLAIN:
        return _PLAIN[name]
    size = _SIZES[arguments.rstrip(">").split(",")[0]]
    if name in _TEMPLATES:
        return _TEMPLATES[name] * size
    # An element and its position, or whether there is one.
    return 2 * max(size, 8 if name == "ArgExtreme" and wide else 4)
