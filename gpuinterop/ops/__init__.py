"""Operations on arrays: elementwise, reductions, BLAS, capture.

Importing this package registers the operator table with the core.
"""

from . import core_callbacks as _core_callbacks

__all__: list[str] = []
del _core_callbacks
