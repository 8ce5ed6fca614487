"""What a capture on "cpu" made holds zeros, and no reader gets it, until a replay or a write."""

import copy
import gc
import pickle

import numpy as np
import pytest
from helpers.threads import in_thread

import gpuinterop as gi
from gpuinterop import CaptureError


def array(*values: float):
    return gi.CudaNdarray(np.asarray(values, "f4"), device="cpu")


def recorded():
    x = array(1, 2, 3)
    with gi.capture(device="cpu") as graph:
        y = x * 2
    return graph, y


READS = {
    "tolist": lambda y: y.tolist(),
    "get": lambda y: y.get(),
    "get into": lambda y: y.get(out=np.empty(3, "f4")),
    "item": lambda y: y[0].item(),
    "float": lambda y: float(y[0]),
    "bool": lambda y: bool(y[0]),
    "__array__": lambda y: y.__array__(),
    "__array_interface__": lambda y: y.__array_interface__,
    "numpy.asarray": np.asarray,
    "numpy.array": np.array,
    "numpy.from_dlpack": np.from_dlpack,
    "__dlpack__": lambda y: y.__dlpack__(),
    "__dlpack__, versioned": lambda y: y.__dlpack__(max_version=(1, 3)),
    "__dlpack__, a copy": lambda y: y.__dlpack__(copy=True),
    "to_buffer": lambda y: gi.to(y, "buffer"),
    "to_numpy": lambda y: gi.to(y, "numpy"),
    "repr": repr,
    "iterated": lambda y: [float(one) for one in y],
    "pickled": pickle.dumps,
    "a copy": lambda y: y.copy(),
    "copied": copy.deepcopy,
    "cast": lambda y: y.astype("float64"),
    "converted": lambda y: gi.asarray(y, "float64"),
    "an operator": lambda y: y + 1,
    "a function": gi.exp,
    "NumPy's function": np.exp,
    "a fused function": gi.fuse(lambda y: y * 2 + 1),
    "a sum": lambda y: y.sum(),
    "a norm": gi.norm,
    "a product": lambda y: y @ y,
    "an addend": lambda y: gi.gemm(gi.ones((3, 3), device="cpu"), gi.ones((3, 3), device="cpu"), y),
    "take": lambda y: y.take([0]),
    "joined": lambda y: gi.concatenate([y, y]),
    "compared": lambda y: gi.allclose(y, y),
    "assigned from": lambda y: array(0, 0, 0).__setitem__(..., y),
    "a view": lambda y: y[::-1].tolist(),
    "x[key]": lambda y: y[[0]],
    "nonzero": gi.nonzero,
    "a mask": lambda y: array(0, 0, 0).__setitem__(y > 0, 1),
}
# The call that the error names.
WHERE = {"an operator": "add", "a sum": "sum", "a product": "matmul", "take": "take", "x[key]": "x[key]",
         "nonzero": "nonzero", "a mask": "greater"}  # fmt: skip


@pytest.mark.parametrize("name", READS)
def test_read_before_the_first_replay_is_refused(name: str) -> None:
    graph, y = recorded()
    with pytest.raises(CaptureError, match=r"fix: replay\(\)") as caught:
        READS[name](y)
    assert caught.value.where == WHERE.get(name, caught.value.where)
    graph.replay()
    READS[name](y)
    assert y.tolist() == [2, 4, 6]


@pytest.mark.torch
def test_torch_shares_the_result_after_a_replay() -> None:
    torch = pytest.importorskip("torch")
    graph, y = recorded()
    gi.to(gi.zeros(1, device="cpu"), "torch")  # the second time the core converts without Python
    for leave in (lambda: gi.to(y, "torch"), lambda: torch.from_dlpack(y),
                  lambda: gi.converters.to_torch(y)):  # fmt: skip
        with pytest.raises(CaptureError, match="replay"):
            leave()
    plan = gi.explain(y, "torch")
    assert (plan.refused, plan.code) == (True, "capture")
    assert "replay" in plan.fix
    graph.replay()
    assert gi.to(y, "torch").tolist() == [2, 4, 6]


def test_another_thread_is_refused_too() -> None:
    x = array(1, 2, 3)
    answers: list[object] = []

    def elsewhere(y) -> None:
        for read in (lambda: y.tolist(), lambda: y + 1, lambda: np.from_dlpack(y), x.tolist):
            try:
                answers.append(read())
            except CaptureError as error:
                answers.append(error.reason)

    with gi.capture(device="cpu") as graph:
        y = x * 2
        in_thread(elsewhere, y)
    # The operands have their values, which nothing changes while the capture records.
    assert answers == ["capture"] * 3 + [[1, 2, 3]]
    graph.replay()
    assert y.tolist() == [2, 4, 6]


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y.fill(5),
        lambda y: y.__setitem__(..., array(5, 5, 5)),
        lambda y: gi.add(array(2, 2, 2), array(3, 3, 3), out=y),
        lambda y: gi.full((3, 3), 5 / 3, device="cpu").sum(0, out=y),
        lambda y: array(5, 5, 5).take([0, 1, 2], out=y),
        lambda y: gi.gemv(gi.ones((3, 5), device="cpu"), gi.ones(5, device="cpu"), out=y),
    ],
    ids=["fill", "assignment", "an operation", "a reduction", "take", "a product"],
)
def test_write_after_a_capture_makes_the_array_readable(write) -> None:
    graph, y = recorded()
    write(y)
    assert y.tolist() == [5, 5, 5]
    graph.replay()
    assert y.tolist() == [2, 4, 6]


def test_partly_written_array_is_zero_elsewhere() -> None:
    filler = [gi.full(5000, 7, device="cpu") for _ in range(8)]
    del filler
    gc.collect()
    x = gi.ones(5000, device="cpu")
    with gi.capture(device="cpu") as graph:
        y = x * 2
        z = gi.empty(5000, device="cpu")
    y[0] = z[0] = 3
    assert y.tolist() == z.tolist() == [3.0] + [0.0] * 4999
    graph.replay()
    assert z.tolist() == [3.0] + [0.0] * 4999


def test_a_capture_of_results_of_another_one() -> None:
    first, y = recorded()
    second = gi.capture(lambda a: a + 1, y)
    with pytest.raises(CaptureError, match="replay"):
        second()
    first.replay()
    assert second().tolist() == [3, 5, 7]


def test_a_replay_that_fails_on_the_way_is_none() -> None:
    broken = [True]

    def host(a):
        if broken:
            raise ValueError("not yet")
        return a

    kernel = gi.ElementwiseKernel("float32 a", "float32 b", "b = a", host=host)
    x = array(1, 2)
    inner = gi.capture(lambda a: (a * 2, kernel(a), a * 3), x)
    outer = gi.capture(lambda: inner()[2] * 2, device="cpu")
    for graph in (inner, outer):
        with pytest.raises(ValueError, match="not yet"):
            graph.replay()
        for y in (*inner.outputs, outer.outputs):
            with pytest.raises(CaptureError, match="replay"):
                y.tolist()
    broken.clear()
    assert outer().tolist() == [6, 12]
    assert [y.tolist() for y in inner.outputs] == [[2, 4], [1, 2], [3, 6]]
    broken.append(True)
    with pytest.raises(ValueError, match="not yet"):
        inner.replay()
    assert inner.outputs[1].tolist() == [1, 2]  # of the replay before


def test_result_of_a_failed_capture_is_not_readable() -> None:
    kept = []
    with pytest.raises(ZeroDivisionError), gi.capture(device="cpu"):
        kept.append(array(1) + 1)
        raise ZeroDivisionError
    with pytest.raises(CaptureError):
        kept[0].tolist()


def test_memory_that_no_replay_filled_is_released_with_its_capture() -> None:
    gc.collect()
    before = gi.memory_stats("cpu")["live_bytes"]
    graph, y = recorded()
    assert gi.memory_stats("cpu")["live_bytes"] > before
    del graph, y
    gc.collect()
    assert gi.memory_stats("cpu")["live_bytes"] == before


@pytest.mark.parametrize("library", ["numpy", "torch", "jax", "tvm_ffi", "buffer"])
@pytest.mark.parametrize("view", [np.s_[:], np.s_[1:], np.s_[::-1]])
def test_explain_predicts_the_conversion_inside_of_a_capture(library, view):
    if library not in ("numpy", "buffer"):
        pytest.importorskip(library)
    x = gi.ones(40, device="cpu")
    gi.to(x, library, copyif=True)  # from the second time on the ordinary case is quick
    with gi.capture(device="cpu") as graph:
        y = (x + x)[view]
        recorded = repr(graph)
        plan = gi.explain(y, library, copyif=True)
        with pytest.raises(CaptureError) as error:
            gi.to(y, library, copyif=True)
        assert repr(graph) == recorded  # no copy is left for each replay to make
    assert plan.refused
    assert plan.code == "capture"
    assert "replay" in plan.fix
    assert str(error.value) == str(plan.exception())
    assert not gi.explain(x, library, copyif=True).refused


@pytest.mark.torch
def test_memory_that_was_shared_before_gets_the_values_of_a_replay():
    x = gi.ones(3, device="cpu")
    y = gi.zeros(3, device="cpu")
    seen = gi.to(y, "torch")
    with gi.capture(device="cpu") as graph:
        gi.add(x, x, out=y)
    assert seen.tolist() == [0, 0, 0]
    graph.replay()
    assert seen.tolist() == [2, 2, 2]
