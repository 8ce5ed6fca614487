"""The computations of the Theano tutorials with the API of gpuinterop, as in examples/."""

import importlib.util
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from doubles import driver
from doubles.on_fake import FAKE
from helpers import opencl
from helpers.mpi import mpirun

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = [path for path in sorted(EXAMPLES.glob("*.py")) if path.stem != "command_line"]


def example(name: str):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_exp_loop(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    results = example("exp_loop").main(device, iterations=3, vlen=5000)
    expected = np.exp(np.random.RandomState(22).rand(5000).astype(np.float32))
    for name, result in results.items():
        np.testing.assert_allclose(result, expected, rtol=3e-7, err_msg=name)
    assert "launched" in capsys.readouterr().out


def test_line(device: str) -> None:
    results, transfers = example("line").main(device, n=64, iterations=2)
    for name, result in results.items():
        np.testing.assert_allclose(result, results["numpy"], rtol=1e-4, atol=1e-4, err_msg=name)
    # Three operands and a result; one of each; none. On the host nothing has to cross.
    counted = [4, 2, 0] if device != "cpu" else [0, 0, 0]
    assert list(transfers.values()) == [0, *counted]


def test_pycuda_exercises(device: str) -> None:
    assert set(example("pycuda_exercises").main(device)) == {
        "double", "product", "sum", "difference", "strided"
    }  # fmt: skip


def test_opencl_exp(device: str) -> None:
    pytest.importorskip("pyopencl")
    opencl.require_compiler()
    results = example("opencl_exp").main(device, iterations=2, vlen=5000)
    expected = np.exp(np.random.RandomState(22).rand(5000).astype(np.float32))
    assert len(results) == 3
    for name, result in results.items():
        np.testing.assert_allclose(result, expected, rtol=3e-7, err_msg=name)


def test_using_the_gpu(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gpuinterop.pytensor", exc_type=ImportError)
    import pytensor

    pytensor.config.cxx = ""
    found = example("using_the_gpu").main(device, steps=2)
    assert list(found) == ["host", "inputs", "shared data", "results on the device"]
    printed = capsys.readouterr().out
    assert printed.count("   moves:") == 6  # two arguments and two results; two results; nothing
    assert "GpuGemv" in printed


PARALLEL = {
    "mpi": ("mpi4py", ["data_parallel_mpi.py"]),
    "torch": ("torch", ["-m", "torch.distributed.run", "--nproc-per-node", "2", "data_parallel_torch.py"]),
    "dask": ("distributed", ["data_parallel_dask.py"]),
    "ray": ("ray.experimental", ["data_parallel_ray.py"]),  # "ray" is also a folder of the tests
}  # fmt: skip


RAY = {"AUTH_MODE": "disabled", "USAGE_STATS_ENABLED": "0", "raylet_start_wait_time_s": "120"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", PARALLEL)
def test_data_parallel_programs_give_the_numbers_of_one_process(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in RAY.items():
        monkeypatch.setenv(f"RAY_{name}", value)
    package, words = PARALLEL[engine]
    pytest.importorskip(package)
    alone = run("data_parallel.py", "cpu")
    start = partial(mpirun, 2, cwd=EXAMPLES) if engine == "mpi" else run
    done = start(*words, "cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    numbers, _, place = alone.stdout.partition(", on ")
    assert numbers == "loss 0.17256, norm of the weights 1.41888"
    assert place == "cpu\n"
    assert numbers in done.stdout


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return driver.python(*words, cwd=EXAMPLES)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_every_example_documents_its_usage(path: Path) -> None:
    done = run(path.name, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {path.name}")
    assert "--device" in done.stdout
    assert f"python examples/{path.name} [DEVICE]" in done.stdout


@pytest.mark.parametrize("words", [["cpu"], ["--device", "cpu"], ["--device=cpu"]])
def test_device_is_an_argument_or_an_option(words: list[str]) -> None:
    done = run("pycuda_exercises.py", *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("agrees with NumPy") == 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "tpu"], "got: 'tpu'"),
        (["cpu", "--device", "cpu"], "not both"),
        (["cpu", "gpu"], "unrecognized arguments: gpu"),
    ],
)
def test_wrong_argument_prints_an_error(words: list[str], message: str) -> None:
    done = run("line.py", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_training_reports_progress(device: str) -> None:
    module, progress = example("logistic_regression"), []
    result = module.train(50, device, tell=lambda *state: progress.append(state))
    assert [steps for steps, _ in progress] == list(range(5, 55, 5))
    expected = [module.oracle(steps)["xent"].mean() for steps, _ in progress]
    np.testing.assert_allclose([loss for _, loss in progress], expected, rtol=1e-3)
    assert result["seconds"] > 0


def same_training(module, steps: int, device: str) -> None:
    result, expected = module.train(steps, device), module.oracle(steps)
    np.testing.assert_allclose(result["w"], expected["w"], rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(result["b"], expected["b"], rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(result["prediction"], expected["prediction"])
    np.testing.assert_array_equal(result["predicted"], expected["predicted"])
    np.testing.assert_allclose(result["xent"], expected["xent"], rtol=1e-3, atol=1e-3)
    # Two kernels. On the fake driver the uploads may still run, and then the graph waits for them.
    assert result["nodes"] == 2 or FAKE or device == "cpu"


def test_logistic_regression(device: str) -> None:
    same_training(example("logistic_regression"), 20 if FAKE else 200, device)


@pytest.mark.slow
def test_logistic_regression_as_long_as_in_the_tutorial(device: str) -> None:
    same_training(example("logistic_regression"), 10_000, device)
