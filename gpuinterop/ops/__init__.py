"""Operations on arrays: elementwise, reductions, BLAS, capture.

Importing this package registers the operator table with the core.
"""

from . import runtime as _runtime

__all__: list[str] = []
del _runtime
