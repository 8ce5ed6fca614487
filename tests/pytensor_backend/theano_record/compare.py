"""Prints, as JSON, the expressions of values.json for which gpuinterop's names give another dtype or value."""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
from theano_record import variables

TOLERANCE = {"float32": 2e-5, "complex64": 2e-5, "float64": 1e-6, "complex128": 1e-9}
BATCH = 40


def expected_of(dtype, value):
    """Return a recorded value as an array."""
    if dtype.startswith("complex"):
        value = np.asarray(value, "float64")
        return (value[..., 0] + 1j * value[..., 1]).astype(dtype)
    return np.array(value, dtype)


def difference(value, recorded):
    """Return what is different, or None."""
    value, expected = np.asarray(value), expected_of(*recorded)
    if value.dtype != expected.dtype or value.shape != expected.shape:
        return f"{value.dtype}{list(value.shape)} for {expected.dtype}{list(expected.shape)}"
    close = TOLERANCE.get(str(value.dtype), 0)
    if np.allclose(value, expected, rtol=close, atol=close, equal_nan=value.dtype.kind in "fc"):
        return None
    return f"{value.tolist()} for {recorded[1]}"


def main(device, floats, mode, share):
    import gpuinterop as gi

    gi.theano.install(
        {
            "THEANO_FLAGS": f"device={device},floatX={floats},print_active_device=False",
            "THEANORC": "",
        }
    )
    import theano
    import theano.tensor as T
    import theano.tensor.nnet.bn
    import theano.tensor.signal.downsample
    import theano.tensor.signal.pool
    import theano.tensor.slinalg

    record = json.loads(Path(__file__).with_name("values.json").read_text())
    wanted = record["float32"] | (record["float64"] if floats == "float64" else {})
    wanted = dict(list(wanted.items())[:: int(share)])
    arrays = variables.values()
    symbols = {
        k: T.TensorType(str(v.dtype), [n == 1 for n in v.shape])(k) for k, v in arrays.items()
    }
    names = symbols | {"T": T, "theano": theano, "np": np}
    found, outputs = {}, {}
    mode = gi.pytensor.GPU if mode == "GPU" else None

    def compute(texts):
        used = [
            x for x in theano.gof.graph.inputs([outputs[t] for t in texts]) if x in symbols.values()
        ]
        function = theano.function(used, [outputs[t] for t in texts], mode=mode)
        return function(*(arrays[x.name] for x in used))

    for text in wanted:
        try:
            outputs[text] = T.as_tensor_variable(eval(variables.compiled(text), names))
        except Exception as error:
            found[text] = f"{type(error).__name__}: {error}"
    texts = list(outputs)
    for batch in (texts[i : i + BATCH] for i in range(0, len(texts), BATCH)):
        try:
            results = dict(zip(batch, compute(batch), strict=True))
        except Exception:
            results = {}
            for text in batch:
                try:
                    [results[text]] = compute([text])
                except Exception as error:
                    found[text] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        for text, value in results.items():
            if (wrong := difference(value, wanted[text])) is not None:
                found[text] = wrong
    print(json.dumps(found))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
