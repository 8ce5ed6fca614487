"""Examples for the docstrings of functions that tables define, of which a test runs each."""

_EXAMPLES = """
add([1, 2], 10) = [11.0, 12.0]; subtract([1, 2], 10) = [-9.0, -8.0]; multiply([1, 2], 10) = [10.0, 20.0];
divide([1, 2], 4) = [0.25, 0.5]; floor_divide([7, -7], 2) = [3.0, -4.0]; remainder([7, -7], 4) = [3.0, 1.0];
divmod([7, -7], 4)[0] = [1.0, -2.0]; fmod([7, -7], 4) = [3.0, -3.0]; power([2, 3], 2) = [4.0, 9.0];
float_power([2, 3], 2) = [4.0, 9.0]; negative([1, -2]) = [-1.0, 2.0]; positive([1, -2]) = [1.0, -2.0];
absolute([1, -2]) = [1.0, 2.0]; fabs([1, -2]) = [1.0, 2.0]; sign([-5, 0, 5]) = [-1.0, 0.0, 1.0];
square([2, 3]) = [4.0, 9.0]; reciprocal([2, 4]) = [0.5, 0.25];
conjugate(gpuinterop.asarray([1 + 2j], 'complex64')) = [(1-2j)]; sqrt([4, 9]) = [2.0, 3.0];
rsqrt([4, 16]) = [0.5, 0.25]; cbrt([8, 64]) = [2.0, 4.0]; hypot([3, 5], [4, 12]) = [5.0, 13.0];
copysign([1, 2], [-1, 1]) = [-1.0, 2.0]; heaviside([-2, 0, 2], 0.5) = [0.0, 0.5, 1.0];
maximum([1, 5], 3) = [3.0, 5.0]; minimum([1, 5], 3) = [1.0, 3.0]; fmax([1, float('nan')], 3) = [3.0, 3.0];
fmin([1, float('nan')], 3) = [1.0, 3.0]; gcd(gpuinterop.asarray([12, 18], 'int32'), 8) = [4, 2];
exp([0, -float('inf')]) = [1.0, 0.0]; exp2([1, 3]) = [2.0, 8.0]; expm1([0]) = [0.0]; log([1]) = [0.0];
log2([1, 8]) = [0.0, 3.0]; log10([1, 10]) = [0.0, 1.0]; log1p([0]) = [0.0]; logaddexp([-float('inf')], 2) = [2.0];
sin([0]) = [0.0]; cos([0]) = [1.0]; tan([0]) = [0.0]; arcsin([0]) = [0.0]; arccos([1]) = [0.0]; arctan([0]) = [0.0];
arctan2([0], [1]) = [0.0]; sinh([0]) = [0.0]; cosh([0]) = [1.0]; tanh([0]) = [0.0]; arcsinh([0]) = [0.0];
arccosh([1]) = [0.0]; arctanh([0]) = [0.0]; deg2rad([0]) = [0.0]; rad2deg([0]) = [0.0]; sigmoid([0]) = [0.5];
softplus([-200, 200]) = [0.0, 200.0]; erf([0, 9]) = [0.0, 1.0]; erfc([0]) = [1.0]; erfinv([0]) = [0.0];
gamma([1, 5]) = [1.0, 24.0]; lgamma([1, 2]) = [0.0, 0.0]; digamma([float('inf')]) = [inf];
floor([1.5, -1.5]) = [1.0, -2.0]; ceil([1.5, -1.5]) = [2.0, -1.0]; trunc([1.5, -1.5]) = [1.0, -1.0];
rint([1.5, 2.5, -1.7]) = [2.0, 2.0, -2.0]; isnan([1, float('nan')]) = [False, True];
isinf([1, float('inf')]) = [False, True]; isfinite([1, float('inf')]) = [True, False];
signbit([1, -1, -0.0]) = [False, True, True]; less([1, 2, 3], 2) = [True, False, False];
less_equal([1, 2, 3], 2) = [True, True, False]; equal([1, 2, 3], 2) = [False, True, False];
not_equal([1, 2, 3], 2) = [True, False, True]; greater([1, 2, 3], 2) = [False, False, True];
greater_equal([1, 2, 3], 2) = [False, True, True]; logical_and([0, 1, 2], [1, 1, 0]) = [False, True, False];
logical_or([0, 0, 2], [0, 1, 0]) = [False, True, True]; logical_xor([0, 1, 2], [0, 0, 1]) = [False, True, False];
logical_not([0, 1]) = [True, False]; bitwise_and(gpuinterop.asarray([6, 3], 'int32'), 2) = [2, 2];
bitwise_or(gpuinterop.asarray([6, 3], 'int32'), 2) = [6, 3];
bitwise_xor(gpuinterop.asarray([6, 3], 'int32'), 2) = [4, 1]; invert(gpuinterop.asarray([0, 1], 'int32')) = [-1, -2];
left_shift(gpuinterop.asarray([1, 3], 'int32'), 2) = [4, 12];
right_shift(gpuinterop.asarray([4, 9], 'int32'), 2) = [1, 2]; where([True, False], [1, 2], 0) = [1.0, 0.0];
sum([[1, 2], [3, 4]], axis=0) = [4.0, 6.0]; prod([2, 3, 4]) = 24.0; mean([1, 2, 6]) = 3.0; min([3, 1, 2]) = 1.0;
max([3, 1, 2]) = 3.0; argmin([3, 1, 2]) = 1; argmax([3, 1, 2]) = 0; all([1, 0, 2]) = False; any([1, 0, 2]) = True;
std([1, 3]) = 1.0; var([1, 3]) = 1.0; matmul([[1, 2], [3, 4]], [1, 10]) = [21.0, 43.0]; dot([1, 2], [3, 4]) = 11.0;
inner([[1, 2], [3, 4]], [1, 10]) = [21.0, 43.0]; vdot([1, 2], [3, 4]) = 11.0;
gemm([[1, 2]], [[3], [4]], alpha=10) = [[110.0]]; addmm([[1]], [[1, 2]], [[3], [4]]) = [[12.0]];
gemv([[1, 2], [3, 4]], [1, 10], [5, 5]) = [26.0, 48.0]; ger([1, 2], [3, 4]) = [[3.0, 4.0], [6.0, 8.0]]
"""
_BY_NAME = {
    entry.strip().partition("(")[0]: entry.strip().split(" = ")
    for entry in _EXAMPLES.replace("\n", " ").split(";")
}


def example_of(name: str) -> str:
    """Return the last section of the docstring of a function, "" without an example."""
    if name not in _BY_NAME:
        return ""
    call, values = _BY_NAME[name]
    return (
        f"\n\nExamples\n--------\n>>> import gpuinterop\n>>> gpuinterop.{call}.tolist()\n{values}\n"
    )
