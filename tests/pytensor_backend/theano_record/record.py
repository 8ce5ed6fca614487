"""Writes Theano 0.8.2's dtypes and values into values.json, for the expressions that it has, a new one with null.

Runs in Python 2.7. `/` divides integers to floats. Without its C code Theano computes with NumPy, so that integers wrap
and a division of integers by 0 is 0. Of the first 1,871 expressions with floatX=float32, 1,740 were also computed with
C code by gcc 12, 1,703 with the same values. The other 37 mix signed and unsigned integers, which C computes as
unsigned ones, divide the lowest int32 or int64, round uint64 above 2^53 or divide inf by 2 with `//`. C ends the
process where integers are divided by 0.

    pip install --target site numpy==1.11.3 scipy==0.18.1 six
    pip install --target site --no-deps theano==0.8.2
    export PYTHONPATH=site THEANO_FLAGS=cxx=,device=cpu,floatX=
    THEANO_FLAGS+=float32 python2.7 record.py; THEANO_FLAGS+=float64 python2.7 record.py
"""

import json
import sys

import numpy as np
import theano
import theano.tensor
import theano.tensor.nnet.bn
import theano.tensor.signal.downsample
import theano.tensor.signal.pool
import theano.tensor.slinalg
import variables

FILE = __file__.replace("record.py", "values.json")
# Fused operations would compute comparisons in NumPy's bool. The other rewrite moves factors and signs out of sums of
# integers, whose products have wrapped before they are summed.
MODE = theano.compile.mode.Mode("py", "fast_run").excluding(
    "fusion", "local_sum_prod_mul_by_scalar"
)


def number(value):
    """Return a float with the fewest digits that give the same value of its dtype, or an int."""
    if value.dtype.kind == "c":
        return [number(value.real), number(value.imag)]
    if value.dtype == "float32" and np.isfinite(value):
        texts = ("{:.{}g}".format(float(value), digits) for digits in range(1, 10))
        return next(float(text) for text in texts if np.float32(text) == value)
    return value.item()


def plain(value):
    """Return an array as nested lists."""
    return [plain(part) for part in value] if value.ndim else number(value[()])


def compute(text, names, used):
    """Return the dtype and the value of an expression."""
    variable = theano.tensor.as_tensor_variable(eval(variables.compiled(text), names))
    inputs = [x for x in theano.gof.graph.inputs([variable]) if x in used]
    function = theano.function(inputs, variable, mode=MODE)
    value = np.asarray(function(*[used[x] for x in inputs]))
    assert str(value.dtype) == variable.dtype
    return [variable.dtype, plain(value)]


def main():
    floats = theano.config.floatX
    with open(FILE) as file:
        record = json.load(file)
    names, used = {"T": theano.tensor, "theano": theano, "np": np}, {}
    for name, value in variables.values().items():
        names[name] = theano.tensor.TensorType(str(value.dtype), [n == 1 for n in value.shape])(
            name
        )
        used[names[name]] = value
    found = {}
    for text in record["float32"]:
        try:
            found[text] = compute(text, names, used)
        except Exception as error:  # Theano cannot compute it
            sys.stderr.write("{}: {!r}\n".format(text, error))
    if floats == "float64":
        found = {text: value for text, value in found.items() if record["float32"][text] != value}
    record[floats] = found
    parts = []
    for name in ("float32", "float64"):
        rows = sorted(record.get(name, {}).items())
        lines = (
            "{}:{}".format(*(json.dumps(part, separators=(",", ":")) for part in row))
            for row in rows
        )
        parts.append('"{}":{{\n{}\n}}'.format(name, ",\n".join(lines)))
    with open(FILE, "w") as file:
        file.write("{{{}}}\n".format(",\n".join(parts)))


if __name__ == "__main__":
    main()
