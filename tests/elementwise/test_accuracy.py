"""Errors in units of the last place, by operation: each device keeps what docs/reference/accuracy.md promises."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from doubles.on_fake import FAKE

import gpuinterop as gi

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import accuracy

CASES = [
    (name, dtype)
    for name, row in accuracy.ROWS.items()
    for dtype in ("float32", "float64")
    if getattr(row, dtype) is not None and not (FAKE and dtype == "float64")
]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_no_error_is_larger_than_promised(device, name, dtype):
    assert accuracy.worst(name, dtype, device) <= getattr(accuracy.ROWS[name], dtype) * 1.001


@pytest.mark.parametrize("dtype", accuracy.COMPLEX_TYPES)
@pytest.mark.parametrize("name", accuracy.COMPLEX_ROWS)
def test_no_complex_error_is_larger_than_promised(device, name, dtype):
    promised = getattr(accuracy.COMPLEX_ROWS[name], dtype)
    assert accuracy.worst_complex(name, dtype, device) <= promised * 1.001


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_no_recorded_error_is_larger_than_promised(place):
    record = Path(accuracy.__file__).parent / "results" / f"accuracy-{place}.json"
    found = json.loads(record.read_text(encoding="utf-8"))["ulps"]
    assert list(found) == list(accuracy.ROWS)
    broken = {
        (name, dtype): error
        for name, errors in found.items()
        for dtype, error in errors.items()
        if error > getattr(accuracy.ROWS[name], dtype)
    }
    assert not broken


# Sixteen digits or more of what a computer algebra system says.
KNOWN = {
    "digamma": {
        0.001: -1000.5755719318103,
        0.25: -4.2274535333762655,
        0.75: -1.0858608797864722,
        1.0: -0.5772156649015329,
        1.0492080300326033: -0.49905923387623647,
        1.25: -0.22745353337626542,
        1.4616321449683622: -9.241265521729427e-17,
        1.5: 0.03648997397857652,
        2.0: 0.42278433509846713,
        2.009597876536066: 0.42895579179288189,
        2.75: 0.8189010249754326,
        5.0: 1.5061176684318005,
        9.5: 2.1977378764029494,
        10.0: 2.251752589066721,
        100.0: 4.600161852738087,
        -0.25: 2.9141391202135276,
        -2.5: 1.103156640645243,
    },
    "lgamma": {
        0.001: 6.907178885383853,
        0.25: 1.2880225246980774,
        0.75: 0.20328095143129538,
        1.006499777822119: -0.0037171362671101765,
        1.25: -0.09827183642181316,
        1.5: -0.12078223763524522,
        2.0000000079100606: 3.3442497342924527e-9,
        2.004446592917181: 0.0018863197954312812,
        2.5: 0.2846828704729192,
        3.25: 0.9358019311087253,
        9.5: 11.689333420797269,
        100.0: 359.1342053695754,
        -0.5: 1.2655121234846454,
        -2.5: -0.056243716497674054,
    },
    "erfinv": {
        0.5: 0.4769362762044699,
        0.999: 2.3267537655135246,
        -0.25: -0.2253120550121781,
    },
}


@pytest.mark.parametrize("name", KNOWN)
def test_functions_without_a_wider_oracle_have_their_known_values(device, name):
    x = np.array(list(KNOWN[name]))
    exact = np.array(list(KNOWN[name].values()))
    got = getattr(gi, name)(gi.GpuArray(x, device=device)).get()
    # Below zero the result is a sum of larger terms.
    scale = np.where(x < 0, np.maximum(np.abs(exact), 3), np.abs(exact))
    kept = accuracy.WITHOUT_ORACLE | ({} if device == "cpu" else {"lgamma": 16})
    allowed = np.where(x < 0, 12, kept.get(name, 12))
    np.testing.assert_array_less(np.abs(got - exact), allowed * np.spacing(scale))
