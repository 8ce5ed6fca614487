"""Ask before acting: ``gpuinterop.explain(x, "torch")`` says what a conversion would do."""

from __future__ import annotations

from typing import Any

from gpuinterop.converters.asking import plan_conversion
from gpuinterop.converters.plan import Plan
from gpuinterop.option_values import require_bool

__all__ = ["explain"]


def explain(x: Any, to: str = "gpuinterop", copyif: bool = False, **options: Any) -> Plan:
    """Say what converting `x` would do: share, copy or refuse, why, and how to mend it.

    Nothing is converted, and a DLPack capsule stays unused. The answer is the plan that the converter
    itself carries out, with ``.shared``, ``.copied``, ``.refused``, ``.reason``, ``.axis``, ``.bytes``
    and ``.fix``; printing it shows all of them. `x` may be one of our arrays or any other; `to` is a
    library's name, or "gpuinterop" and "cudandarray" for an array of ours. The library is imported,
    as the conversion would, to see that this works. Inside `no_copies` a copy is a refusal, and so is,
    inside a capture, what a graph cannot hold: a library that works on a stream outside the capture,
    or a copy to the host. Of converters of other packages, one without ``plan_to`` gives ``.unknown``,
    and one without ``plan_from`` is tried; which stream they work on nobody knows.

    Inside a capture it does not foresee what a foreign library itself raises there; that page-locked host
    memory whose last use is captured cannot go to torch, jax, tvm_ffi, cuda_core and tensorflow; and
    that a consumer on the legacy stream is refused while another library captures a blocking stream.

    Examples
    --------
    >>> import numpy, gpuinterop
    >>> x = gpuinterop.from_any(numpy.zeros((4, 6), "float32"))
    >>> gpuinterop.explain(x[:, ::-1], to="numpy").shared
    True
    """
    return plan_conversion(x, to, require_bool(copyif, "copyif", "explain"), options, "explain")
