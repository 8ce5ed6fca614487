"""torch's functions and operators take gpuinterop arrays as tensors over the same memory."""

import collections
import operator

import numpy as np
import pytest

import gpuinterop as gi

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

Pair = collections.namedtuple("Pair", "first second")


@pytest.fixture
def x():
    return gi.array(np.array([1.0, 2.0, 3.0], np.float32), device="cpu")


@pytest.fixture
def t():
    return torch.tensor([10.0, 20.0, 30.0])


CALLS = {
    "function": lambda x, t: torch.sin(x),
    "operands": lambda x, t: torch.add(t, x),
    "keyword": lambda x, t: torch.add(input=t, other=x, alpha=2),
    "left operator": lambda x, t: t * x,
    "comparison": lambda x, t: t > x,
    "method": lambda x, t: t.mul(x),
    "list": lambda x, t: torch.stack([x, t]),
    "nested": lambda x, t: torch.cartesian_prod(*(x, t)),
    "named tuple": lambda x, t: torch.cat(Pair(x, t)),
    "function in Python": lambda x, t: torch.einsum("i,i->i", x, t),
    "module function": lambda x, t: torch.nn.functional.linear(x, t),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_torch_functions_take_arrays_as_tensors(call, x, t):
    result = call(x, t)
    assert isinstance(result, torch.Tensor)
    assert torch.equal(result, call(torch.tensor(x.tolist()), t))


def test_array_on_the_left_stays_an_array(x, t):
    assert type(x * t) is gi.CudaNdarray
    assert (x * t).tolist() == [10, 40, 90]


def test_views_share_the_arrays_memory(x):
    halves = torch.split(x, [1, 2])
    halves[1][:] = 7
    assert x.tolist() == [1, 7, 7]
    assert torch.ravel(x).data_ptr() == x.ptr


def test_in_place_calls_write_into_the_tensor(x, t):
    same = t
    t -= x
    assert same is t
    assert t.tolist() == [9, 18, 27]
    t.add_(x)
    t[1:] = x[:2]
    assert t.tolist() == [10, 1, 2]


def test_in_place_operator_updates_a_parameter(x):
    layer = torch.nn.Linear(3, 1, bias=False)
    weight, before = layer.weight, layer.weight.detach().clone()
    with torch.no_grad():
        weight -= x
    assert weight is layer.weight
    assert torch.equal(layer.weight, before - torch.tensor(x.tolist()))


def test_out_takes_tensors_and_arrays(x, t):
    assert torch.sin(x, out=t) is t
    np.testing.assert_allclose(t, np.sin([1.0, 2.0, 3.0]), rtol=1e-6)
    torch.mul(t, 0, out=x)
    assert x.tolist() == [0, 0, 0]
    values, places = x[:1].copy(), gi.zeros(1, dtype="int64", device="cpu")
    torch.max(torch.tensor([[1.0, 5.0]]), 1, out=(values, places))
    assert (values.item(), places.item()) == (5, 1)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("key", [np.s_[:, :3], np.s_[:, ::2], np.s_[:2], np.s_[:0], np.s_[0, :1]])
def test_out_of_another_shape_is_refused_and_nothing_beside_it_is_written(key):
    big, t = gi.zeros((4, 10), device="cpu"), torch.ones(3, 4)
    with pytest.raises(gi.ShapeError) as caught:
        torch.add(t, t, out=big[key])
    assert (caught.value.where, caught.value.fix[:31]) == (
        "torch.add",
        "pass an array of shape (3, 4), ",
    )
    big[key] = 0
    assert not np.any(big.get())


def test_out_that_is_a_view_with_gaps_gets_the_result():
    big, expected = gi.zeros((4, 10), device="cpu"), np.zeros((4, 10), np.float32)
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    result = torch.add(torch.tensor(a), 1, out=big[:3, 1:8:2])
    np.add(a, 1, out=expected[:3, 1:8:2])
    assert np.array_equal(big, expected)
    result[0, 0] = 50  # the result shares the memory of out
    assert big[0, 1].item() == 50
    values, places = big[0, ::5], gi.zeros((2, 2), dtype="int64", device="cpu")[:, 1]
    torch.max(torch.tensor([[1.0, 5.0], [8.0, 7.0]]), 1, out=(values, places))
    assert (values.tolist(), places.tolist()) == ([5, 8], [1, 0])


def test_arrays_take_part_in_autograd_as_constants(x):
    w = torch.ones(3, requires_grad=True)
    (w * x).sum().backward()
    assert w.grad.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("call", "where"),
    [(lambda x, t: torch.sin(x), "torch.sin"), (lambda x, t: t - x, "torch.Tensor.sub")],
)
def test_refusal_names_the_call(call, where, x, t):
    with pytest.raises(gi.ContiguityError) as caught:
        call(x[::-1], t)
    error = caught.value
    assert (error.where, error.reason, error.fix) == (where, "strides", "pass a copy: x.copy()")
    assert torch.equal(call(x[::-1].copy(), t), call(torch.tensor([3.0, 2.0, 1.0]), t))
    with pytest.raises(gi.ContiguityError, match=r"for out= copy the result back: x\[\.\.\.\]"):
        torch.sin(t, out=x[::-1])
    x.readonly = True
    with pytest.raises(gi.ReadOnlyError, match=where):
        call(x, t)


@pytest.mark.parametrize("call", [operator.mul, operator.isub, lambda t, x: torch.sin(x)])
def test_dtype_that_torch_lacks_is_refused_by_operators_too(call, t):
    x = gi.array([1, 2, 3], dtype="float8_e4m3", device="cpu")
    with pytest.raises(gi.ExportError, match="dtype") as caught:
        call(t, x)
    assert caught.value.reason == "dtype"


@pytest.mark.gpu
def test_torch_functions_on_a_gpu(t):
    if torch.version.cuda is None:
        pytest.skip("torch was built without CUDA")
    x, t = gi.array(np.array([1.0, 2.0, 3.0], np.float32), device="cuda"), t.cuda()
    t -= x
    assert t.tolist() == [9, 18, 27]
    assert torch.sin(x, out=t) is t
    assert torch.ravel(x).data_ptr() == x.ptr
