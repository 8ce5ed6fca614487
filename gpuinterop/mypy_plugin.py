"""A plug-in for mypy: NumPy's ufuncs return gpuinterop arrays for gpuinterop arrays, as gpuinterop's functions declare.

NumPy's stubs declare NumPy arrays, or anything. mypy loads this file by ``plugins = gpuinterop.mypy_plugin``.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.checker import TypeChecker
from mypy.nodes import TempNode
from mypy.plugin import MethodContext, MethodSigContext, Plugin
from mypy.types import (
    AnyType,
    FunctionLike,
    Instance,
    LiteralType,
    Type,
    TypeOfAny,
    flatten_nested_unions,
    get_proper_type,
)


def _is_array(found: Type) -> bool:
    parts = [get_proper_type(part) for part in flatten_nested_unions([found])]
    return all(isinstance(p, Instance) and p.type.has_base("gpuinterop._core.Array") for p in parts)


class _Ufuncs(Plugin):
    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        named = fullname.startswith("numpy._typing._ufunc.") and fullname.endswith(".__call__")
        return self._result if named else None

    def get_method_signature_hook(
        self, fullname: str
    ) -> Callable[[MethodSigContext], FunctionLike] | None:
        return self._signature if self.get_method_hook(fullname) else None

    def _signature(self, context: MethodSigContext) -> FunctionLike:
        """Return a signature that accepts gpuinterop arrays everywhere, as operands and as ``out=``."""
        signature, api = context.default_signature, context.api
        given = [
            api.get_expression_type(argument) for formal in context.args for argument in formal
        ]
        if not any(map(_is_array, given)):
            return signature
        anything, kinds = AnyType(TypeOfAny.special_form), signature.arg_kinds
        types = [
            found if kind.is_star() else anything
            for found, kind in zip(signature.arg_types, kinds, strict=True)
        ]
        return signature.copy_modified(arg_types=types)

    def _result(self, context: MethodContext) -> Type:
        """Return the type that gpuinterop's function of the same name has for the arguments."""
        ufunc, checker = get_proper_type(context.type), context.api
        name = (
            get_proper_type(ufunc.args[0]) if isinstance(ufunc, Instance) and ufunc.args else None
        )
        assert isinstance(checker, TypeChecker)
        given = [found for formal in context.arg_types for found in formal]
        if not isinstance(name, LiteralType) or not any(map(_is_array, given)):
            return context.default_return_type
        function = self.lookup_fully_qualified(f"gpuinterop.{name.value}")
        if function is None or function.type is None:
            return context.default_return_type
        with checker.msg.filter_errors() as errors:
            result, _ = checker.expr_checker.check_call(
                function.type,
                [TempNode(found) for found in given],
                [kind for formal in context.arg_kinds for kind in formal],
                context.context,
                [argument for formal in context.arg_names for argument in formal],
            )
        return context.default_return_type if errors.has_new_errors() else result


def plugin(version: str) -> type[Plugin]:
    """Return the class of the plug-in, for mypy."""
    return _Ufuncs
