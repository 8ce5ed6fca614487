"""Names of Theano that PyTensor has under another name, or in another module."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any

from pytensor.graph import traversal
from pytensor.graph.basic import equal_computations
from pytensor.graph.replace import graph_replace

from gpuinterop.pytensor import device_op

# By Theano's module: old=new, where new is in the package pytensor; one word where the last parts are equal.
_NAMES = {
    "theano": "graph.type.Type graph.fg.FunctionGraph compile.sharedvalue.SharedVariable compile.builders.OpFromGraph "
    "compile.debug.profiling.ProfileStats compile.mode.predefined_modes compile.mode.predefined_linkers "
    "printing.pprint link.basic.Container link.basic.PerformLinker link.c.basic.CLinker link.c.basic.OpWiseCLinker "
    "gradient.subgraph_grad link.c.type.generic tensor.shape.shape_padright "
    "tensor.basic.get_scalar_constant_value compile.debug.dump.function_dump",
    "theano.compile": "compile.builders.OpFromGraph compile.debug.profiling.ProfileStats tensor.shape.Shape_i "
    "compile.debug.monitormode.detect_nan link.c.type.generic tensor.shape.Shape "
    "tensor.shape.SpecifyShape tensor.shape.specify_shape compile.debug.dump.function_dump",
    "theano.gof": "PureOp=graph.op.Op graph.type.Type link.c.type.generic link.c.type.Generic "
    "graph.null_type.NullType graph.utils.MethodNotDefined graph.destroyhandler.DestroyHandler link.c.basic.CLinker "
    "link.c.basic.OpWiseCLinker link.basic.Linker link.basic.LocalLinker link.basic.WrapLinker "
    "link.basic.PerformLinker link.c.op.OpenMPOp link.c.op.COp VM_Linker=link.vm.VMLinker "
    "graph.op.io_connection_pattern utils.hash_from_code utils.flatten utils.uniq utils.difference "
    "graph.utils.InconsistencyError graph.utils.MissingInputError graph.utils.add_tag_trace graph.basic.Node "
    "graph.basic.as_string graph.basic.clone_get_equiv graph.basic.equal_computations "
    "graph.traversal.general_toposort graph.traversal.toposort link.basic.Container link.basic.WrapLinkerMany "
    "link.utils.map_storage link.utils.raise_with_op link.vm.VM link.vm.Loop link.c.interface.CLinkerOp "
    "link.c.type.CDataType Query=graph.rewriting.db.RewriteDatabaseQuery",
    "theano.printing": "pydotprint_variables=printing.pydotprint",
    "theano.scalar": "Scalar=scalar.basic.ScalarType abs_=scalar.basic.abs inv=scalar.basic.reciprocal "
    "Inv=scalar.basic.Reciprocal Sgn=scalar.basic.Sign sgn=scalar.basic.sign",
    "theano.gradient": "consider_constant=gradient.zero_grad",
    "theano.scan_module": "scan.op.Scan scan.utils.until graph.basic.equal_computations "
    "clone=graph.replace.clone_replace",
    "theano.tensor": "AdvancedSubtensor1=tensor.subtensor.AdvancedSubtensor MaxAndArgmax=tensor.math.Argmax "
    "AdvancedIncSubtensor1=tensor.subtensor.AdvancedIncSubtensor true_divide=tensor.math.true_div "
    "CAReduceDtype=tensor.elemwise.CAReduce ger=tensor.math.outer generic=link.c.type.generic "
    "tensor.exceptions.ShapeError tensor.exceptions.AdvancedIndexingError CumsumOp=tensor.extra_ops.CumOp "
    "printing.pprint "
    "RepeatOp=tensor.extra_ops.Repeat _shared=tensor.sharedvar.tensor_constructor",
}


def _as_list(function: Any) -> Callable[..., list[Any]]:
    return lambda *arguments: list(function(*arguments))


def _ancestors(variables: list[Any], blockers: Any = None) -> list[Any]:
    """Return the variables and those that they depend on, depth first: PyTensor's order is another one."""
    found: dict[Any, None] = {}
    waiting = list(variables)
    while waiting:
        x = waiting.pop()
        if x not in found and x.owner and x not in (blockers or ()):
            waiting += reversed(x.owner.inputs)
        found[x] = None
    return list(found)


def _inputs(variables: list[Any], blockers: Any = None) -> list[Any]:
    return [x for x in _ancestors(variables, blockers) if x.owner is None]


def _is_same_graph(one: Any, other: Any, givens: Any = None) -> bool:
    """Return whether two variables are computed alike from the same variables, or from those of `givens`."""
    one, other = graph_replace([one, other], dict(givens or {}), strict=False)
    return bool(equal_computations([one], [other]))


# Functions of theano.gof.graph; the others returned lists.
_TRAVERSALS = {
    "inputs": _inputs, "ancestors": _ancestors, "io_toposort": _as_list(traversal.io_toposort),
    "ops": _as_list(traversal.applys_between), "variables": _as_list(traversal.vars_between),
    "orphans": _as_list(traversal.orphans_between), "is_same_graph": _is_same_graph,
}  # fmt: skip


def renamed(module: str) -> dict[str, Any]:
    """Return the names of one of Theano's modules, without those that this version of PyTensor lacks."""
    found: dict[str, Any] = {}
    for word in _NAMES.get(module, "").split():
        old, _, new = word.rpartition("=")
        with suppress(AttributeError, ImportError):
            found[old or new.rpartition(".")[2]] = resolve_name(f"pytensor.{new}")
    return found | (_TRAVERSALS if module == "theano.gof" else {})


# Classes of the device that are one class of PyTensor.
_SAME = {
    "GpuSum": "GpuCAReduce", "GpuCAReduceCuda": "GpuCAReduce", "GpuCAReduceCPY": "GpuCAReduce",
    "GpuFlatten": "GpuReshape", "GpuAdvancedSubtensor1": "GpuAdvancedSubtensor",
    "GpuAdvancedIncSubtensor1": "GpuAdvancedIncSubtensor",
}  # fmt: skip


class _DeviceClasses:
    """The classes of operations on a device, such as GpuElemwise, by Theano's names."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("Gpu"):
            return getattr(device_op, _SAME.get(name, name))
        raise AttributeError(name)


DEVICE_CLASSES = _DeviceClasses()
