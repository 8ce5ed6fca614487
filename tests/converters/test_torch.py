"""torch's peculiarities: properties that its fast path ignores, and calls that would abort the process."""

import gc
import sys
import textwrap

import numpy as np
import pytest
from doubles import driver
from helpers.cases import agree

import gpuinterop as gi
from gpuinterop import converters

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch


ENTRY_POINTS = {
    "from_any": gi.from_any,
    "from_torch": converters.from_torch,
    "from_dlpack": gi.from_dlpack,
    "asarray": gi.asarray,
    "to_cudandarray": gi.to_cudandarray,
    "asarray of a class": lambda t: gi.asarray(t, dtype="float32", copy=False),
}


def test_a_negative_stride_is_refused_because_torch_would_abort():
    x = gi.from_dlpack(np.arange(6.0))[::-1]
    for call in (torch.from_dlpack, torch.utils.dlpack.from_dlpack):
        with pytest.raises(BufferError, match=r"x\.copy\(\)") as raised:
            call(x)
        plan = gi.explain(x, "torch")
        error = raised.value
        assert (error.expected, error.got, error.axis) == (plan.reason, plan.got, plan.axis)
    with pytest.raises(gi.GpuInteropError):
        gi.to(x, "torch")
    assert torch.from_dlpack(x[::-1]).tolist() == [0, 1, 2, 3, 4, 5]
    assert torch.from_dlpack(x[2:3]).tolist() == [3]
    assert torch.from_dlpack(x, copy=True).tolist() == [5, 4, 3, 2, 1, 0]


class Named(torch.nn.Parameter):
    pass


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("change", ["double", "data", "set_"])
@pytest.mark.parametrize("cls", [torch.nn.Parameter, Named])
def test_parameter_with_replaced_memory_leaves_the_shared_array_unchanged(entry_point, change, cls):
    module = torch.nn.Linear(600, 600).requires_grad_(False)
    module.weight = parameter = cls(module.weight.detach(), requires_grad=False)
    before = parameter.numpy().copy()
    w = ENTRY_POINTS[entry_point](parameter)
    assert w.ptr == parameter.data_ptr()
    if change == "double":
        module.double()
    elif change == "data":
        parameter.data = torch.zeros(2, 2)
    else:
        parameter.set_(torch.zeros(3))
    gc.collect()
    scratch = [torch.full((600, 600), 7.0) for _ in range(8)]
    assert parameter.data_ptr() != w.ptr
    assert all(t.data_ptr() != w.ptr for t in scratch)
    assert np.array_equal(w.get(), before)


def test_torchs_own_functions_ignore_the_read_only_mark():
    """As docs/understand/read-only.md says, gpuinterop allows this. If torch refuses it one day, change the page."""
    host = np.zeros(3, np.float32)
    host.flags.writeable = False
    r = gi.from_any(host)
    for entry_point in (torch.from_dlpack, torch.as_tensor):
        assert entry_point(r).data_ptr() == r.ptr
    with pytest.raises(gi.ReadOnlyError):
        gi.to(r, "torch")


def test_repeated_copies_keep_no_references_to_the_tensor_class():
    x = gi.ones((4,), device="cpu")[::-1]
    gi.to(x, "torch", copyif=True)
    before = sys.getrefcount(torch.Tensor)
    for _ in range(50):
        gi.to(x, "torch", copyif=True)
    assert sys.getrefcount(torch.Tensor) < before + 25


def test_copy_of_pending_signs_is_one_dense_copy():
    z = (torch.arange(6) + 1j).to(torch.complex64).reshape(2, 3)
    for tensor in (z.T.conj(), z.conj(), z.conj().imag, z.T.conj().imag, z[:, ::2].conj()):
        with gi.count_copies() as counted:
            plan, x, _ = agree(tensor, copyif=True)
        assert (counted.count, counted.bytes) == (1, plan.bytes)
        assert x.is_c_contiguous()
        assert np.array_equal(x.get(), tensor.resolve_conj().resolve_neg().numpy())
        # What the next library does is predicted for the copy, not for the tensor.
        assert agree(tensor, "buffer", True)[0].bytes == plan.bytes


@pytest.mark.parametrize("order", ["torch, gpuinterop", "gpuinterop, torch"])
def test_default_collate_stacks_arrays_in_either_order_of_the_imports(order):
    program = """
        x = gpuinterop.ones((2, 3), device="cpu")
        import torch.utils.data
        batch = torch.utils.data.default_collate([x, 2 * x])
        print(type(batch).__name__, batch.tolist())
    """
    printed = driver.run(f"import {order}\n{textwrap.dedent(program)}")
    assert printed == f"Tensor {[[[1.0] * 3] * 2, [[2.0] * 3] * 2]}\n"


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of a fork with threads
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX's, if another test has loaded it
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_a_data_loader_makes_tensors_of_arrays_in_tuples_and_dicts(dtype, workers):
    n = np.arange(24, dtype=dtype).reshape(4, 2, 3)
    x = gi.asarray(n, device="cpu")
    data = [(row, {"flipped": row.T[::-1], "mean": float(row.mean())}) for row in x]
    batches = list(torch.utils.data.DataLoader(data, batch_size=2, num_workers=workers))
    for i, (rows, more) in enumerate(batches):
        expected = n[2 * i : 2 * i + 2]
        assert rows.dtype == getattr(torch, dtype)
        assert np.array_equal(rows.numpy(), expected)
        assert np.array_equal(more["flipped"].numpy(), expected.transpose(0, 2, 1)[:, ::-1])
        assert np.allclose(more["mean"].numpy(), expected.mean((1, 2), dtype="float64"))
    assert [len(rows) for rows, _ in batches] == [2, 2]
    assert np.array_equal(next(iter(torch.utils.data.DataLoader(x, batch_size=4))).numpy(), n)


@pytest.mark.gpu
def test_a_batch_of_arrays_on_a_gpu_stays_there():
    x = gi.arange(6, dtype="float32", device="cuda:0").reshape(2, 3)
    with gi.log_transfers() as log:
        batch = torch.utils.data.default_collate([x, x[:, ::-1]])
    assert (batch.device, len(log)) == (torch.device("cuda:0"), 0)
    assert batch.cpu().tolist() == [[[0, 1, 2], [3, 4, 5]], [[2, 1, 0], [5, 4, 3]]]


def test_a_parameter_shares_the_memory_of_an_array():
    x = gi.asarray(np.arange(6, dtype="float32").reshape(2, 3), device="cpu")
    parameter = torch.nn.Parameter(gi.to(x, "torch"))
    (parameter**2).sum().backward()
    with torch.no_grad():
        parameter -= 0.5 * parameter.grad
    assert parameter.data_ptr() == x.ptr
    assert not x.any()
