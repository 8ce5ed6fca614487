"""The operation table. One entry defines an operation: on CUDA, on the host, and as a public function.

The operands in a CUDA expression are x, y and z, in the type of the computation: bool, a fixed-width
integer, float (for float16 and smaller too), double, c64 or c128.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)  # compared by identity, because caches use rows as keys
class Row:
    """One operation.

    Attributes
    ----------
    name : of the public function.
    inputs : the number of operands.
    cuda : the expression, or a dict with one for each letter of a dtype: b (bool),
        i and u (integers), f (floats), c (complex). Kinds that are missing have no CUDA kernel.
        Several results are separated by ``;``.
    numpy : a NumPy ufunc, a function of host arrays computed in float64, or None for one of the core's own.
    like : the ufunc whose dtype rule holds; `numpy` itself when None.
    letter_from : index of the operand whose letter selects the expression.
    compares : the result is a bool that compares two ordered operands.
    doc : first line of the docstring.
    results : the number of results.
    operands : names of the operands in the signature.
    keeps_signs : the result is an operand, or differs from it by its sign only: see Body.
    """

    name: str
    inputs: int
    cuda: str | Mapping[str, str]
    numpy: Callable[..., Any] | None
    doc: str
    like: np.ufunc | None = None
    letter_from: int = 0
    compares: bool = False
    results: int = 1
    operands: tuple[str, ...] = ("x", "y", "z")
    keeps_signs: bool = False

    rule: np.ufunc = field(init=False)
    expressions: dict[str, str] = field(init=False)  # by the letter of a dtype

    def __post_init__(self) -> None:
        rule = self.numpy if self.like is None else self.like
        assert isinstance(rule, np.ufunc), f"row {self.name} needs like="
        groups = {"biufc": self.cuda} if isinstance(self.cuda, str) else self.cuda
        object.__setattr__(self, "rule", rule)
        object.__setattr__(
            self,
            "expressions",
            {letter: text for group, text in groups.items() for letter in group},
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _row, (self.name,)  # by name, because rows are compared by identity


def _row(name: str) -> Row:
    return TABLE[name]


def _f(name: str, cuda: str, numpy: Any, doc: str, complex: str = "", **more: Any) -> Row:
    """Return the row of a function of one float."""
    return Row(name, 1, {"f": cuda, "c": complex} if complex else {"f": cuda}, numpy, doc, **more)


def _special(name: str, cuda: str, doc: str) -> Row:
    return Row(name, 1, {"f": cuda}, None, doc, like=np.exp)


def _compare(name: str, cuda: str, numpy: np.ufunc, symbol: str) -> Row:
    return Row(name, 2, cuda, numpy, f"True where x {symbol} y.", compares=True)


ROWS: tuple[Row, ...] = (
    # ---- arithmetic ---------------------------------------------------------------------------
    Row("add", 2, {"b": "x || y", "iu": "gi_add(x, y)", "fc": "x + y"}, np.add, "x + y."),
    Row("subtract", 2, {"iu": "gi_sub(x, y)", "fc": "x - y"}, np.subtract, "x - y."),
    Row("multiply", 2, {"b": "x && y", "iu": "gi_mul(x, y)", "fc": "x * y"}, np.multiply, "x * y."),
    Row("divide", 2, {"fc": "x / y"}, np.divide, "x / y, always a float."),
    Row("floor_divide", 2, {"iuf": "gi_floordiv(x, y)"}, np.floor_divide,
        "The largest integer not above x / y; 0 for integers divided by 0."),
    Row("remainder", 2, {"iuf": "gi_mod(x, y)"}, np.remainder,
        "x - y * floor_divide(x, y), with the sign of y."),
    Row("divmod", 2, {"iuf": "gi_floordiv(x, y); gi_mod(x, y)"}, np.divmod,
        "floor_divide and remainder at once.", results=2),
    Row("fmod", 2, {"iuf": "gi_fmod(x, y)"}, np.fmod, "The remainder with the sign of x."),
    Row("power", 2, {"iu": "gi_ipow(x, y)", "f": "pow(x, y)", "c": "gi_pow(x, y)"}, np.power,
        "x to the power y."),
    Row("float_power", 2, {"f": "pow(x, y)", "c": "gi_pow(x, y)"}, np.float_power,
        "x to the power y, in float64 or complex128."),
    Row("negative", 1, {"iufc": "gi_neg(x)"}, np.negative, "-x.", keeps_signs=True),
    Row("positive", 1, {"iufc": "x"}, np.positive, "A copy of x.", keeps_signs=True),
    Row("absolute", 1, {"b": "x", "iufc": "gi_abs(x)"}, np.absolute, "The absolute value.", keeps_signs=True),
    Row("fabs", 1, {"f": "gi_abs(x)"}, np.fabs, "The absolute value, as a float.", keeps_signs=True),
    Row("sign", 1, {"iufc": "gi_sign(x)"}, np.sign, "-1, 0 or 1; x / |x| for complex numbers.", keeps_signs=True),
    Row("square", 1, {"iu": "gi_mul(x, x)", "fc": "x * x"}, np.square, "x * x."),
    Row("reciprocal", 1,
        {"iu": "x == 0 ? x : 1 / x", "f": "1 / x",
         "c": "gi_reciprocal(x)"}, np.reciprocal,
        "1 / x; 0 for the integer 0."),
    Row("conjugate", 1, {"iuf": "x", "c": "gi_conj(x)"}, np.conjugate, "The complex conjugate.", keeps_signs=True),
    _f("sqrt", "sqrt(x)", np.sqrt, "The square root.", "gi_sqrt(x)"),
    _special("rsqrt", "1 / sqrt(x)", "1 / sqrt(x)."),
    _f("cbrt", "cbrt(x)", np.cbrt, "The cube root."),
    Row("hypot", 2, {"f": "hypot(x, y)"}, np.hypot, "sqrt(x * x + y * y), without overflow."),
    Row("copysign", 2, {"f": "copysign(x, y)"}, np.copysign, "x with the sign of y."),
    Row("heaviside", 2, {"f": "gi_heaviside(x, y)"}, np.heaviside, "0 below zero, 1 above, y at zero."),
    Row("maximum", 2, {"b": "x || y", "iufc": "gi_max(x, y)"}, np.maximum,
        "The larger operand; NaN if one is NaN.", keeps_signs=True),
    Row("minimum", 2, {"b": "x && y", "iufc": "gi_min(x, y)"}, np.minimum,
        "The smaller operand; NaN if one is NaN.", keeps_signs=True),
    Row("fmax", 2, {"b": "x || y", "iufc": "gi_fmax(x, y)"}, np.fmax,
        "The larger operand; NaN only if both are.", keeps_signs=True),
    Row("fmin", 2, {"b": "x && y", "iufc": "gi_fmin(x, y)"}, np.fmin,
        "The smaller operand; NaN only if both are.", keeps_signs=True),
    Row("gcd", 2, {"iu": "gi_gcd(x, y)"}, np.gcd, "The greatest common divisor."),
    # ---- exponentials -------------------------------------------------------------------------
    _f("exp", "exp(x)", np.exp, "e to the power x.", "gi_exp(x)"),
    _f("exp2", "exp2(x)", np.exp2, "2 to the power x.",
       "gi_exp(gi_make((decltype(x.re))0.693147180559945309 * x.re, (decltype(x.re))0.693147180559945309 * x.im))"),
    _f("expm1", "expm1(x)", np.expm1, "exp(x) - 1, accurate near zero.", "gi_expm1(x)"),
    _f("log", "log(x)", np.log, "The natural logarithm.", "gi_log(x)"),
    _f("log2", "log2(x)", np.log2, "The logarithm to base 2.", "gi_scaled(gi_log(x), 1.44269504088896340736)"),
    _f("log10", "log10(x)", np.log10, "The logarithm to base 10.", "gi_scaled(gi_log(x), 0.434294481903251827651)"),
    _f("log1p", "log1p(x)", np.log1p, "log(1 + x), accurate near zero.", "gi_log1p(x)"),
    Row("logaddexp", 2, {"f": "gi_logaddexp(x, y)"}, np.logaddexp,
        "log(exp(x) + exp(y)), without overflow."),
    # ---- trigonometric and hyperbolic functions ---------------------------------------------------
    _f("sin", "sin(x)", np.sin, "The sine of an angle in radians.", "gi_sin(x)"),
    _f("cos", "cos(x)", np.cos, "The cosine of an angle in radians.", "gi_cos(x)"),
    _f("tan", "tan(x)", np.tan, "The tangent of an angle in radians.", "gi_tan(x)"),
    _f("arcsin", "asin(x)", np.arcsin, "The angle, in radians, whose sine is x.", "gi_asin(x)"),
    _f("arccos", "acos(x)", np.arccos, "The angle, in radians, whose cosine is x.", "gi_acos(x)"),
    _f("arctan", "atan(x)", np.arctan, "The angle, in radians, whose tangent is x.", "gi_atan(x)"),
    Row("arctan2", 2, {"f": "atan2(x, y)"}, np.arctan2, "The angle of the point (y, x), in radians."),
    _f("sinh", "sinh(x)", np.sinh, "The hyperbolic sine.", "gi_sinh(x)"),
    _f("cosh", "cosh(x)", np.cosh, "The hyperbolic cosine.", "gi_cosh(x)"),
    _f("tanh", "tanh(x)", np.tanh, "The hyperbolic tangent.", "gi_tanh(x)"),
    _f("arcsinh", "asinh(x)", np.arcsinh, "The inverse of sinh.", "gi_asinh(x)"),
    _f("arccosh", "acosh(x)", np.arccosh, "The inverse of cosh.", "gi_acosh(x)"),
    _f("arctanh", "atanh(x)", np.arctanh, "The inverse of tanh.", "gi_atanh(x)"),
    _f("deg2rad", "x * (decltype(x))0.017453292519943295769", np.deg2rad, "Degrees to radians."),
    _f("rad2deg", "x * (decltype(x))57.295779513082320877", np.rad2deg, "Radians to degrees."),
    # ---- special functions -----------------------------------------------------------------------
    _special("sigmoid", "gi_sigmoid(x)", "1 / (1 + exp(-x))."),
    _special("softplus", "gi_softplus(x)", "log(1 + exp(x))."),
    _special("erf", "erf(x)", "The error function."),
    _special("erfc", "erfc(x)", "1 - erf(x), accurate for large x."),
    _special("erfinv", "erfinv(x)", "The inverse of erf."),
    _special("gamma", "tgamma(x)", "The gamma function."),
    _special("lgamma", "lgamma(x)", "The logarithm of |gamma(x)|."),
    _special("digamma", "gi_digamma(x)", "The derivative of lgamma."),
    # ---- rounding --------------------------------------------------------------------------------
    Row("floor", 1, {"biu": "x", "f": "floor(x)"}, np.floor, "The largest integer not above x."),
    Row("ceil", 1, {"biu": "x", "f": "ceil(x)"}, np.ceil, "The smallest integer not below x."),
    Row("trunc", 1, {"biu": "x", "f": "trunc(x)"}, np.trunc, "x truncated to an integer, towards zero."),
    _f("rint", "rint(x)", np.rint, "The nearest integer; of two, the even one.",
       "gi_make(rint(x.re), rint(x.im))"),
    # ---- comparisons and tests -------------------------------------------------------------------
    Row("isnan", 1, {"biu": "false", "f": "x != x", "c": "x.re != x.re || x.im != x.im"}, np.isnan,
        "True where x is not a number."),
    Row("isinf", 1, {"biu": "false", "f": "isinf(x) != 0", "c": "isinf(x.re) || isinf(x.im)"}, np.isinf,
        "True where x is infinite."),
    Row("isfinite", 1, {"biu": "true", "f": "isfinite(x) != 0", "c": "isfinite(x.re) && isfinite(x.im)"},
        np.isfinite, "True where x is neither infinite nor NaN."),
    Row("signbit", 1, {"f": "signbit(x) != 0"}, np.signbit,
        "True where the sign is minus, also of zero."),
    _compare("less", "gi_lt(x, y)", np.less, "<"),
    _compare("less_equal", "gi_le(x, y)", np.less_equal, "<="),
    _compare("equal", "gi_eq(x, y)", np.equal, "=="),
    _compare("not_equal", "!gi_eq(x, y)", np.not_equal, "!="),
    _compare("greater", "gi_lt(y, x)", np.greater, ">"),
    _compare("greater_equal", "gi_le(y, x)", np.greater_equal, ">="),
    Row("logical_and", 2, "gi_is_true(x) && gi_is_true(y)", np.logical_and, "True where both are true."),
    Row("logical_or", 2, "gi_is_true(x) || gi_is_true(y)", np.logical_or, "True where at least one is true."),
    Row("logical_xor", 2, "gi_is_true(x) != gi_is_true(y)", np.logical_xor, "True where exactly one is true."),
    Row("logical_not", 1, "!gi_is_true(x)", np.logical_not, "True where x is false."),
    # ---- bits ------------------------------------------------------------------------------------
    Row("bitwise_and", 2, {"b": "x && y", "iu": "x & y"}, np.bitwise_and, "x & y."),
    Row("bitwise_or", 2, {"b": "x || y", "iu": "x | y"}, np.bitwise_or, "x | y."),
    Row("bitwise_xor", 2, {"b": "x != y", "iu": "x ^ y"}, np.bitwise_xor, "x ^ y."),
    Row("invert", 1, {"b": "!x", "iu": "~x"}, np.invert, "~x; not x for bool."),
    Row("left_shift", 2, {"iu": "gi_shl(x, y)"}, np.left_shift, "x << y."),
    Row("right_shift", 2, {"iu": "gi_shr(x, y)"}, np.right_shift, "x >> y."),
    # ---- choice ----------------------------------------------------------------------------------
    Row("where", 3, "x ? y : z", np.where, "x where the condition is true, y elsewhere.", like=np.add,
        letter_from=1, operands=("condition", "x", "y"), keeps_signs=True),
    # The ufunc of np.clip is private: loop_dtypes promotes all three operands by the rule of maximum.
    Row("clip", 3, {"biufc": "gi_min(gi_max(x, y), z)"}, np.clip, "x limited to the range from y to z.",
        like=np.maximum, keeps_signs=True),
    # A cast is this operation with an out of another dtype.
    Row("cast", 1, "x", np.positive, "x in the dtype of out.", like=np.positive, keeps_signs=True),
)  # fmt: skip

TABLE: dict[str, Row] = {row.name: row for row in ROWS}
# Further names, those of NumPy, of the array API and of the Theano tutorials.
ALIASES: dict[str, str] = {
    "abs": "absolute", "true_divide": "divide", "mod": "remainder", "pow": "power", "conj": "conjugate",
    "degrees": "rad2deg", "radians": "deg2rad", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
    "atan2": "arctan2", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
    "bitwise_not": "invert", "bitwise_invert": "invert", "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift", "psi": "digamma", "gammaln": "lgamma",
}  # fmt: skip
