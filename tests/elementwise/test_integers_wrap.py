"""Integers wrap around on every device as NumPy's do, and no compiler may reckon that they do not."""

import shutil
import subprocess

import numpy as np
import pytest
from doubles import host_kernels

import gpuinterop as gi
from gpuinterop.arrays.dtypes import NAMES
from gpuinterop.elementwise import codegen
from gpuinterop.elementwise.codegen import KernelSpec
from gpuinterop.elementwise.promotion import body_for
from gpuinterop.elementwise.table import ROWS

SIGNED = ("int8", "int16", "int32", "int64")
TYPES = (*SIGNED, "uint8", "uint16", "uint32", "uint64")
# What a compiler takes for true, or for x, when integers do not overflow.
FOLDED = {
    "x + 1 > x": lambda x: x + 1 > x,
    "x - 1 < x": lambda x: x - 1 < x,
    "x * x < 0": lambda x: x * x < 0,
    "square(x) < 0": lambda x: gi.square(x) < 0,
    "abs(x) + 1 > 0": lambda x: abs(x) + 1 > 0,
    "-x < 0 or x <= 0": lambda x: (-x < 0) | (x <= 0),
    "x * 2 // 2": lambda x: x * 2 // 2,
    "(x << 1) // 2": lambda x: (x << 1) // 2,
    "x * 10 % 10": lambda x: x * 10 % 10,
    "x ** 2 < 0": lambda x: x**2 < 0,
    "x // -1 < 0": lambda x: x // -1 < 0,
}


def edges(dtype: str) -> np.ndarray:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = [low, low + 1, low // 2, 0, 1, 2, 3, 10, high // 2, high // 2 + 1, high - 1, high]
    return np.array(values + ([-1, -2, -10] if low else []), dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", [n for n in FOLDED if "-" not in n] + ["x - 1 < x"])
def test_fused_integers_wrap_around(device, name, dtype):
    values = edges(dtype)
    x = gi.GpuArray(values, device=device)
    with np.errstate(all="ignore"):
        expected = FOLDED[name](values) if "square" not in name else values * values < 0
    for found in (gi.fuse(FOLDED[name])(x), FOLDED[name](x)):
        np.testing.assert_array_equal(found.get(), expected)
        assert found.dtype == expected.dtype


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint64"])
def test_reduced_integers_wrap_around(device, dtype):
    values = np.resize(edges(dtype), 300)
    x = gi.GpuArray(values, device=device)
    with np.errstate(all="ignore"):
        wide = np.int64 if dtype.startswith("i") else np.uint64
        assert int((x * x + x).sum()) == int((values * values + values).sum(dtype=wide))
        assert int(gi.fuse(lambda x: (x * x + x).sum())(x)) == int((values * values + values).sum())
        odd = values | 1
        assert int((x | 1).prod()) == int(odd.prod(dtype=wide))
        np.testing.assert_array_equal((x @ x).get(), values @ values)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64"])
def test_no_operation_overflows_under_the_sanitizer(tmp_path, dtype):
    specs, calls = [], []
    values = ", ".join(f"{v}ll" if v >= 0 else f"({v + 1}ll - 1)" for v in edges(dtype).tolist())
    for row in ROWS:
        try:
            body, (_, outs) = body_for(row, (NAMES.index(dtype),) * row.inputs)
        except gi.DTypeError:
            continue
        if any(name not in TYPES for name in body.loop_in):
            continue
        stored = (*body.loop_in, *(NAMES[r] for r in outs))
        spec = KernelSpec(body, stored, "C" * len(stored), "flat", 0, 1, 1)
        specs.append(spec)
        given = [f"v[{'ijk'[n]}]" for n in range(row.inputs)]
        results = [f"r{n}" for n in range(len(outs))]
        declared = " ".join(f"{codegen.STORAGE[NAMES[r]]} r{n};" for n, r in enumerate(outs))
        loops = " ".join(f"for (int {i} = 0; {i} < N; ++{i})" for i in "ijk"[: row.inputs])
        calls.append(f"{loops} {{ {declared} {spec.symbol}_apply({', '.join(given + results)}); }}")
    assert len(specs) > 20
    kind = codegen.STORAGE[dtype]
    text = host_kernels.host_text(codegen.render(*specs))
    text += f"\nint main() {{ using namespace {codegen.NAMESPACE};\n"
    text += f"  static const {kind} v[] = {{{values}}};\n  const int N = sizeof v / sizeof *v;\n  "
    source, program = tmp_path / "rows.cpp", tmp_path / "rows"
    source.write_text(text + "\n  ".join(calls) + "\n}\n")
    runner = host_kernels.runner()
    overflows = "-fsanitize=signed-integer-overflow,shift,integer-divide-by-zero"
    subprocess.run(
        ["g++", "-std=c++17", "-w", "-O0", "-fno-strict-aliasing", overflows,
         "-fsanitize-undefined-trap-on-error", source, runner, f"-Wl,-rpath,{runner.parent}", "-o", program],
        check=True,
    )  # fmt: skip
    assert subprocess.run([program], check=False).returncode == 0
