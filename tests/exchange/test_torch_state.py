"""What torch's DLPack table does not say of a tensor: autograd, pending negation and conjugation."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gpuinterop as gi

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

DTYPES = ["float32", "float64", "float16", "bfloat16", "complex64", "int32", "uint8", "bool"]


def refused(tensor, words: str) -> None:
    with pytest.raises((gi.ExportError, gi.DTypeError), match=words):
        gi.from_dlpack(tensor)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_pending_negation_is_refused_for_every_dtype(dtype):
    plain = torch.ones(4, 3, dtype=getattr(torch, dtype))
    negated = torch._neg_view(plain)
    for view in (negated, negated[1:], negated[:0], negated.T, negated.detach(), negated[1, 2]):
        assert view.is_neg()
        refused(view, "is_neg")
    # Twice is not at all, and what was resolved is memory like any other.
    resolved = [] if dtype == "bool" else [negated.resolve_neg()]
    for tensor in (plain, torch._neg_view(negated), *resolved):
        assert gi.from_dlpack(tensor).ptr == tensor.data_ptr()


def test_the_state_is_that_of_the_moment():
    """One object, changed between two conversions."""
    t = torch.ones(3)
    assert gi.from_dlpack(t).ptr == t.data_ptr()
    t.requires_grad_()
    refused(t, "requires_grad")
    t.requires_grad_(False)
    assert gi.from_dlpack(t).ptr == t.data_ptr()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is:DeprecationWarning")  # make_dual itself
def test_a_tensor_with_a_tangent_is_refused_wherever_it_came_from():
    forward = torch.autograd.forward_ad
    primal, inside = torch.ones(2, 3), torch.zeros(2, 3)
    with forward.dual_level():
        dual = forward.make_dual(primal, torch.full((2, 3), 2.0))
        inside.add_(dual)  # becomes one in place
        duals = dual, dual * 3, dual[1:], dual.T, dual.sum(), inside
        for tensor in duals:
            assert not tensor.requires_grad
            refused(tensor, "tangent")
            for door in (gi.from_any, gi.asarray, gi.from_dlpack, gi.CudaNdarray):
                with pytest.raises(gi.GpuInteropError, match="unpack_dual"):
                    door(tensor)
            plan = gi.explain(tensor)
            assert plan.refused
            assert plan.code == "grad"
        for mended in (forward.unpack_dual(dual).primal, dual.detach(), primal):
            assert gi.from_dlpack(mended).ptr == primal.data_ptr()
            assert gi.explain(mended).shared
    # A level that ends takes its tangents along.
    assert gi.from_dlpack(dual).ptr == primal.data_ptr()
    assert gi.explain(dual).shared


def test_tensors_made_outside_autograd_are_shared():
    leaf = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        refused(leaf[1:].requires_grad_(), "requires_grad")
        x = leaf * 2
    for tensor in (x, leaf.detach(), x[1:]):
        assert gi.from_dlpack(tensor).ptr == tensor.data_ptr()
    with torch.inference_mode():
        t = torch.ones(3)
        assert gi.from_dlpack(t).ptr == t.data_ptr()
        refused(torch._neg_view(t), "is_neg")


def test_many_tensors_of_all_states():
    """Objects that are made and dropped at the same addresses in other states."""
    for i in range(300):
        t = torch.ones(i % 5, 3)
        if i % 3 == 1:
            t.requires_grad_()
        elif i % 3 == 2:
            t = torch._neg_view(t)
        if i % 3:
            refused(t, "is_neg|requires_grad")
        else:
            assert gi.from_dlpack(t).shape == tuple(t.shape)


FIRST_IN_A_MODE = """
import torch
import gpuinterop as gi
from torch._subclasses.fake_tensor import FakeTensorMode

plain, grad = torch.ones(3), torch.ones(3, requires_grad=True)
negated = torch._neg_view(plain)


def check():
    assert gi.from_dlpack(plain).ptr == plain.data_ptr()
    for tensor in (grad, negated):
        try:
            gi.from_dlpack(tensor)
        except gi.GpuInteropError:
            continue
        raise SystemExit("a tensor was accepted whose memory does not hold its values")


with FakeTensorMode():
    check()
check()
"""


def test_the_first_conversion_inside_a_mode_that_changes_every_call():
    done = subprocess.run(
        [sys.executable, "-c", FIRST_IN_A_MODE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["uint1", "uint4", "uint7", "int1", "int4", "int7"])
def test_a_capsule_of_an_integer_of_a_few_bits_shows_the_bytes_that_torch_says_it_holds(name):
    """Torch writes "8 bits" into the capsule, and stores a byte for each element: nothing else is left
    to tell it from torch.uint8. The tensor itself tells its dtype, and is refused."""
    stored = torch.arange(4, dtype=torch.uint8)
    narrow = stored.view(getattr(torch, name))
    capsules = torch.utils.dlpack.to_dlpack(narrow), narrow.__dlpack__(max_version=(1, 3))
    for capsule in capsules:
        x = gi.from_dlpack(capsule)
        assert (x.dtype.name, x.ptr) == (f"{name.rstrip('147')}8", stored.data_ptr())
        assert x.tolist() == [0, 1, 2, 3]
    for door in (gi.from_any, gi.from_dlpack, gi.asarray):
        with pytest.raises(gi.DTypeError, match=f"torch.{name}"):
            door(narrow)
