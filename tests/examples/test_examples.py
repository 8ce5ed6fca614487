"""The documents' computations over our own API, as in examples/."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


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
    results = example("line").main(device, n=64, iterations=2)
    for name, result in results.items():
        np.testing.assert_allclose(result, results["numpy"], rtol=1e-4, atol=1e-4, err_msg=name)


def test_pycuda_exercises(device: str) -> None:
    assert set(example("pycuda_exercises").main(device)) == {
        "double", "product", "sum", "difference", "strided"
    }  # fmt: skip


def same_training(module, steps: int, device: str) -> None:
    result, expected = module.train(steps, device), module.oracle(steps)
    np.testing.assert_allclose(result["w"], expected["w"], rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(result["b"], expected["b"], rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(result["prediction"], expected["prediction"])
    np.testing.assert_allclose(result["xent"], expected["xent"], rtol=1e-3, atol=1e-3)
    assert result["nodes"] == 3


def test_logistic_regression(device: str) -> None:
    same_training(example("logistic_regression"), 200, device)


@pytest.mark.slow
def test_logistic_regression_as_long_as_in_the_tutorial(device: str) -> None:
    same_training(example("logistic_regression"), 10_000, device)
