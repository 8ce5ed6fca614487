"""Every operation, on every dtype, in every class of layouts, compiles: no GPU, no driver.

The quick suite takes a quarter of the operations, casts and types and spreads layouts over them; the rest
is marked slow.
"""

import os
import re

import numpy as np
import pytest

from gpuinterop import jit
from gpuinterop.arrays.dtypes import NAMES, WITHOUT_KERNELS
from gpuinterop.elementwise import codegen
from gpuinterop.elementwise.codegen import KernelSpec
from gpuinterop.elementwise.promotion import body_for, core_body
from gpuinterop.elementwise.table import ROWS
from gpuinterop.errors import DTypeError
from gpuinterop.index import masks
from gpuinterop.jit.nvrtc import Target
from gpuinterop.linalg import small
from gpuinterop.random import generator
from gpuinterop.reduce import softmax
from gpuinterop.sorting import distinct, lines, scan, search

pytestmark = [pytest.mark.text, pytest.mark.usefixtures("nvrtc")]

TYPES = ("bool", "int8", "uint16", "int32", "int64", "uint64", "float16", "bfloat16", "float32",
         "float64", "complex64", "complex128", "float8_e4m3fn")  # fmt: skip
# (layout, modes of the inputs in turn, mode of the result, dimensions, vector, tile, across, skew)
LAYOUTS = (
    ("flat", "C", "C", 0, 4, 0, 1, 1), ("flat", "RSX", "C", 0, 1, 0, 1, 1),
    ("flat", "KC", "X", 0, 1, 0, 1, 1), ("rows", "CS", "C", 1, 4, 0, 1, 1),
    ("rows", "XKR", "C", 2, 1, 0, 1, 1), ("rows", "UCR", "C", 1, 4, 0, 1, 8),
    ("general", "XK", "X", 3, 1, 0, 1, 1), ("general", "X", "X", 2, 1, 0, 1, 1),
    ("tile", "TC", "C", 0, 2, 32, 2, 1), ("tile", "TX", "C", 2, 1, 32, 1, 1),
    ("tile", "TU", "C", 1, 4, 32, 1, 16), ("tile", "tT", "C", 1, 4, 32, 4, 16),
)  # fmt: skip
ARCHS = (75, 80, 90, 100, 120)
EVERYTHING = float(os.environ.get("GPUINTEROP_SOAK", "1")) > 1


def a_quarter(values):
    """The values as parameters, of which all but every fourth are slow."""
    return [
        pytest.param(v, marks=[pytest.mark.slow] if i % 4 else []) for i, v in enumerate(values)
    ]


def known_archs() -> list[int]:
    return [a for a in ARCHS if a in jit.supported_archs()]


def spec_for(body, stored, layout) -> KernelSpec:
    name, ins, out, ndim, vector, tile, across, skew = layout
    n = len(body.loop_in)
    modes = "".join(ins[i % len(ins)] for i in range(n)) + out * (len(stored) - n)
    if skew > 1 and "complex128" in stored:  # of 16 bytes, which are an access: the core skews none
        vector = across = skew = 1
    return KernelSpec(body, stored, modes, name, ndim, vector, 2, tile, across, skew)


def instances(row, types=TYPES):
    """(body, stored dtypes) for every type that the row is defined for."""
    for name in types:
        try:
            body, (_, outs) = body_for(row, (NAMES.index(name),) * row.inputs)
        except DTypeError:
            continue
        yield body, (*(name,) * row.inputs, *(NAMES[r] for r in outs))


def build(specs: list[KernelSpec], arch: int) -> None:
    unique = list({spec.symbol: spec for spec in specs}.values())
    code = jit.compile_source(codegen.render(*unique), arch)
    assert code.startswith(b"\x7fELF")
    for spec in unique:
        assert spec.symbol.encode() in code


def test_a_quarter_of_the_operations_and_casts():
    cast = next(row for row in ROWS if row.name == "cast")
    specs = []
    for index, row in enumerate(ROWS[::4]):
        found = list(instances(row))
        specs.append(spec_for(*found[index % len(found)], LAYOUTS[index % len(LAYOUTS)]))
    for index, source in enumerate(NAMES[:26:4]):
        body, _ = body_for(cast, (NAMES.index(source),))
        specs.append(spec_for(body, (source, NAMES[index * 7 % 26]), LAYOUTS[0]))
    build(specs, known_archs()[0])


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: f"{layout[0]}-{layout[1]}")
def test_every_layout_on_two_architectures(layout):
    """On the oldest, and on each of the others in turn."""
    add = next(row for row in ROWS if row.name == "add")
    oldest, *others = known_archs()
    for arch in (oldest, others[LAYOUTS.index(layout) % len(others)]):
        build(
            [spec_for(b, s, layout) for b, s in instances(add, ("float32", "complex64", "int8"))],
            arch,
        )


@pytest.mark.parametrize("layout", ["rows", "tile"])
def test_whole_vectors_in_one_access(layout):
    negative, specs = next(row for row in ROWS if row.name == "negative"), []
    vectors = {"float16": 8, "float32": 4, "float64": 2}
    for body, stored in instances(negative, vectors):
        v = vectors[stored[0]]
        for skew in (1, 2 * v):
            shape = ("CC", "rows", 1) if layout == "rows" else ("TC", "tile", 0)
            edge = 0 if layout == "rows" else 64 if v > 2 else 32
            specs.append(KernelSpec(body, stored, *shape, v, 2, edge, v, skew))
    ptx = jit.compile_source(codegen.render(*specs), Target(known_archs()[0], is_cubin=False))
    for body in ptx.split(b".entry ")[1:]:
        accesses = [
            len(re.findall(rb"\b%s\.global\.(v2\.[buf]64|v4)" % kind, body))
            for kind in (b"ld", b"st")
        ]
        assert min(accesses) > 0, body[:80]


@pytest.mark.parametrize("size", a_quarter((4, 1, 2, 8, 16)))
def test_moves_of_bits(size):
    raw = f"u{8 * size}"
    specs = [spec_for(core_body("copy", (raw, raw)), (raw, raw), layout) for layout in LAYOUTS]
    specs.append(spec_for(core_body("fill", (raw, raw)), (raw, raw), LAYOUTS[2]))
    join = (raw, "u128", raw, raw, "u128", "u128", raw)
    specs.append(KernelSpec(core_body("join", join), join, "AKAAKKC", "flat", 0, 1, 1))
    triangle = (raw, "u128", raw, raw)
    specs.append(KernelSpec(core_body("triangle", triangle), triangle, "AKXX", "general", 2, 1, 1))
    specs.append(KernelSpec(core_body("select", ("bool", raw, raw, raw)), ("bool", raw, raw, raw),
                            "CKCC", "flat", 0, 4, 1))  # fmt: skip
    build(specs, known_archs()[-1])


INDEX_TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def index_specs(op: str, index: str, element: str) -> list[KernelSpec]:
    """The kernels of an operation on one index array, and on two."""
    one = (index, "u128", "u128", element, element)
    two = (index, "int64", "u128", "u128", "u128", element, element)
    last = "C" if op == "gather" else "S"
    return [
        KernelSpec(core_body(op, one), one, "CKKA" + last, "flat", 0, 2, 2),
        KernelSpec(core_body(op, one), one, "XKKAX", "general", 3, 1, 2),
        KernelSpec(core_body(op, two), two, "SCKKKA" + last, "rows", 1, 2, 2),
    ]


@pytest.mark.parametrize("index", a_quarter(INDEX_TYPES))
def test_index_arrays_of_every_type(index):
    at = INDEX_TYPES.index(index)
    element = ("u8", "u16", "u32", "u64", "u128")[at % 5]
    specs = [*index_specs("gather", index, element), *index_specs("scatter", index, element)]
    check = (index, "u128", "u128")
    specs.append(KernelSpec(core_body("check_indices", check), check, "CKK", "flat", 0, 2, 1))
    build(specs, known_archs()[at % len(known_archs())])


@pytest.mark.parametrize("element", a_quarter(n for n in NAMES if n not in WITHOUT_KERNELS))
def test_addition_at_indices_of_every_type(element):
    specs = index_specs("scatter_add", "int64", element)
    build(specs if EVERYTHING else specs[:1], known_archs()[0])


@pytest.mark.slow
@pytest.mark.parametrize("source", NAMES[:26])
def test_casts_to_every_type(source):
    cast = next(row for row in ROWS if row.name == "cast")
    body, _ = body_for(cast, (NAMES.index(source),))
    build(
        [
            spec_for(body, (source, to), LAYOUTS[0])
            for to in NAMES[NAMES.index(source) % 5 : 26 : 5]
        ],
        known_archs()[0],
    )


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_whole_grid(row):
    """Every row with every type; architectures and layouts take turns. GPUINTEROP_SOAK=2 tries them all."""
    turn, archs = ROWS.index(row), known_archs()
    for arch in archs if EVERYTHING else [archs[turn % len(archs)]]:
        for layout in LAYOUTS if EVERYTHING else [LAYOUTS[turn % len(LAYOUTS)]]:
            build([spec_for(body, stored, layout) for body, stored in instances(row)], arch)


@pytest.mark.parametrize("wide", ["int64", "float64"])
def test_spaced_values(wide):
    results = ("int8", "uint64") if wide == "int64" else ("float32", "float64")
    stored = [(t, "uint64", "int64", wide, wide, wide, t) for t in results]
    specs = [KernelSpec(core_body("spaced", s), s, "AKKKKKC", "flat", 0, 2, 1) for s in stored]
    build(specs, known_archs()[-1])


@pytest.mark.parametrize("kind", [generator.UNIFORM, generator.NORMAL, generator.INTEGERS])
def test_random_numbers(kind):
    types = ("u8", "u16", "u32", "u64") if kind == generator.INTEGERS else ("float32", "float64")
    for name in types:
        assert jit.compile_source(generator.fill_text(kind, name), known_archs()[kind])


# ---- sorting and scans --------------------------------------------------------------------------


def build_text(text: str, *kernels: str) -> None:
    code = jit.compile_source(text, known_archs()[len(text) % 2], options=jit.EXACT)
    assert all(kernel.encode() in code for kernel in kernels)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_small_matrices_of_every_type(dtype):
    for name in ("solve", "cholesky", "reflectors")[
        "complex" in dtype :
    ]:  # solve is of real numbers
        build_text(
            small.text(name, dtype, (44 << 10) // np.dtype(dtype).itemsize, 256), f"gi_{name}"
        )


KEYS = ("bool", "int8", "uint16", "int64", "float32", "float64", "bfloat16", "int32", "float16")


@pytest.mark.parametrize("dtype", a_quarter(KEYS))
def test_sorts_of_every_type(dtype):
    turn, size = KEYS.index(dtype), 8 if dtype[-2:] == "64" else 4
    of_text = dtype, bool(turn % 2), bool(turn // 2 % 2)
    build_text(lines.text("short_lines", *of_text, lines.Form(256, 1)), "gi_sort_short_lines")
    form = lines.BLOCK_FORMS[size][-(turn % 2)]
    build_text(lines.text("block_lines", *of_text, form), "gi_sort_block_lines")
    wide = turn % 3 == 2
    form = lines.WIDE_FORM if wide else lines.SWEEP_FORMS[size]
    for indices in {of_text[1], 2}:
        of_text = dtype, indices, of_text[2]
        build_text(lines.text("sweeps", *of_text, form, wide), "gi_sort_count", "gi_sort_sweep")


SCANS = (("sum", "bool", "int64"), ("max", "int8", "int8"), ("any", "complex64", "bool"),
         ("sum", "float32", "float32"), ("sum", "complex128", "complex128"), ("min", "float64", "float64"),
         ("prod", "float16", "float16"), ("all", "bool", "bool"), ("prod", "int64", "uint64"),
         ("sum", "float8_e4m3fn", "float8_e4m3fn"))  # fmt: skip


@pytest.mark.parametrize("of_text", a_quarter(SCANS))
def test_scans_of_every_type(of_text):
    build_text(scan.text("scan_few", *of_text), "gi_scan_few")
    build_text(scan.text("scan_columns", *of_text), "gi_scan_columns")
    form = scan.FORMS[{"complex128": 16}.get(of_text[2], 8 if of_text[2][-2:] == "64" else 4)][-1]
    for vector, aligned in ((1, False), (2, True)):
        text = scan.text("scan_tiles", *of_text, *form, vector, aligned)
        build_text(text, "gi_scan_tiles", "gi_scan_totals", "gi_scan_running_totals")


SEARCHED = ("complex128", "bool", "int64", "float16", "float32")


@pytest.mark.parametrize("dtype", a_quarter(SEARCHED))
def test_searches_of_every_type(dtype):
    turn = SEARCHED.index(dtype)
    build_text(search.search_text(dtype, turn % 4), "gi_search")
    text = distinct.unique_text(dtype, turn % 3, turn % 2 == 0, turn < 3)
    build_text(text, "gi_unique_count", "gi_unique_write")


def test_inverse():
    build_text(lines.inverse_text(), "gi_inverse_clear", "gi_inverse_write")


@pytest.mark.parametrize("action", [masks.READ, masks.ASSIGN, masks.PLACES])
def test_compaction(action):
    for ndim, itemsize in ((1, 1), (3, 16)):
        text = masks.compact_text("compact_write", action, itemsize, ndim, ndim == 3)
        build_text(text, "gi_compact_write")
    text = masks.compact_text("compact_count", action, 8, 1, False)
    build_text(text, "gi_compact_count", "gi_compact_repeat_count", "gi_compact_repeat_write")


@pytest.mark.parametrize("form", a_quarter(softmax.FORMS))
def test_softmax_of_every_length(form):
    for number, dtype in enumerate(sorted(map(str, softmax.DTYPES))):
        build_text(softmax.text(dtype, bool(number % 2), *form), "gi_softmax_rows")
