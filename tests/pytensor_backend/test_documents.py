"""The programs of the old documents run as printed (tests/documents, cut by tools/cut_programs.py)."""

import re

import pytest

pytest.importorskip("gpuinterop.pytensor", exc_type=ImportError)

from old_programs import PROGRAMS, run

import gpuinterop as gi

EXP = "[1.2317803 1.6187934 1.5227807 ... 2.2077184 2.2996774 1.6232328]"
ELEMWISE = "GpuElemwise{exp,no_inplace}"
ON_GPU = {
    "check1": f"[{ELEMWISE}(<CudaNdarrayType(float32, vector)>), HostFromGpu({ELEMWISE}.0)]",
    "check2": f"[{ELEMWISE}(<CudaNdarrayType(float32, vector)>)]",
    "check3": f"[{ELEMWISE}(<CudaNdarrayType(float32, vector)>)]",
    "gpuarray_check1": f"[{ELEMWISE}(<GpuArray<float64>>), HostFromGpu(gpuarray)({ELEMWISE}.0)]",
    "gpuarray_check2": f"[{ELEMWISE}(<GpuArray<float64>>)]",
}


# The flags of each program, from the commands of the map in the documentation.
PAGE = (PROGRAMS.parents[1] / "docs" / "reference" / "theano-programs.md").read_text(
    encoding="utf-8"
)
FLAGS = {
    name: dict(flag.split("=") for flag in flags.split(","))
    for flags, name in re.findall(r"^THEANO_FLAGS=(\S+) gpuinterop run tests/documents/(\w+)\.py\.txt$", PAGE, re.M)
}  # fmt: skip
ON_HOST = re.search(r"^(No GPU .*)\n(\[Elemwise.*)$", PAGE, re.M)


def printed_by(name, device):
    """The output of a program of the documents, run by its command in the map where only `device` is."""
    return run(PROGRAMS / f"{name}.py.txt", gpu=gi.device(device).type == "cuda", **FLAGS[name])


def test_every_program_has_a_command_in_the_map():
    for path in PROGRAMS.glob("*.txt"):
        assert f"tests/documents/{path.name}" in PAGE


@pytest.mark.parametrize("name", ON_GPU)
def test_program_prints_graph_and_numbers(name, device):
    out, err = printed_by(name, device)
    on_gpu = gi.device(device).type == "cuda"
    assert out.rstrip().endswith("Used the gpu" if on_gpu else "Used the cpu")
    if on_gpu:
        assert out.splitlines()[0] == ON_GPU[name]
        assert re.search(r"Using (gpu device 0|device cuda0): ", err)
    else:
        assert ON_HOST[1] == err.splitlines()[0].replace("cuda0", "gpu")
        host = ON_HOST[2].replace("float32", FLAGS[name].get("floatX", "float64"))
        if not name.endswith("check1"):
            host = f"{host[:-1]}, GpuFromHost(Elemwise{{exp,no_inplace}}.0)]"
        assert out.splitlines()[0] == host
    first, last = re.search(r"\[(1\.23178\d*) .* (1\.6232\d*) ?\]", out).groups()
    assert [float(first), float(last)] == pytest.approx([1.2317803, 1.6232329], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["logistic_regression", "solution", "blog_theano", "blog_shared", "blog_shared2"]
)
def test_training_program_runs(name, device):
    out, _ = printed_by(name, device)
    if name in ("logistic_regression", "solution"):
        used = "gpu" if gi.device(device).type == "cuda" else "cpu"
        assert out.startswith(f"Used the {used}\n")
        lists = re.findall(r"(?:target values for|prediction on) D\s*\[(.*?)\]", out, re.DOTALL)
        target, prediction = lists
        agree = [
            float(t) == float(p) for t, p in zip(target.split(), prediction.split(), strict=True)
        ]
        assert all(agree)  # 784 weights fit 400 labels
