"""Which cuBLAS function a product calls, with which arguments: on the fake driver and a fake cuBLAS."""

import ctypes
import functools
import os
from collections.abc import Iterator

import numpy as np
import pytest
from doubles import driver, fake_driver, internals
from helpers.products import close, values
from helpers.threads import in_thread

import gpuinterop
from gpuinterop import CudaNdarray

GEMM, BATCHED, SEPARATE, BIAS, WORKSPACES, HEURISTICS, COMPUTE = range(7)

pytestmark = pytest.mark.fake_driver


@functools.cache
def cublas() -> ctypes.CDLL:
    return ctypes.CDLL(os.environ["GPUINTEROP_LIBCUBLAS"])


def calls_of(which: int) -> int:
    return cublas().fakecublas_calls(which)


def test_an_addend_costs_no_copy(device: str) -> None:
    m, x, b = (CudaNdarray(values(*s), device=device) for s in [(6, 5), (5, 4), (6, 4)])
    row = CudaNdarray(values(4), device=device)
    before = [calls_of(i) for i in range(4)]
    with gpuinterop.count_copies() as copies:
        gpuinterop.gemm(m, x, b)
        gpuinterop.gemm(m, x, row)
        gpuinterop.gemm(m, x, b, out=b)
    assert copies.count == 0
    assert [calls_of(i) - n for i, n in enumerate(before)] == [1, 0, 1, 1]


def test_a_plan_that_fails_halfway_leaves_nothing(device: str) -> None:
    a, b, c = (values(*s) for s in [(7, 3), (3, 9), (7, 9)])
    m, x, addend = (CudaNdarray(v, device=device) for v in (a, b, c))
    before = cublas().fakecublas_objects()
    try:
        for layouts in range(4):
            cublas().fakecublas_fail_after(layouts)
            with pytest.raises(MemoryError, match="cublasLtMatrixLayoutCreate"):
                gpuinterop.gemm(m, x, addend)
            assert cublas().fakecublas_objects() == before
    finally:
        cublas().fakecublas_fail_after(-1)
    close(gpuinterop.gemm(m, x, addend), a.astype(float) @ b + c)
    assert cublas().fakecublas_objects() == before + 5  # a description and four layouts


@pytest.mark.parametrize(
    ("shapes", "batched"),
    [(((3, 4, 5), (3, 5, 2)), 1), (((2, 3, 4, 5), (2, 3, 5, 2)), 1), (((3, 4, 5), (5, 2)), 0),
     (((4, 5), (3, 5, 2)), 1)],
)  # fmt: skip
def test_stacks_are_one_call(device: str, shapes, batched: int) -> None:
    a, b = values(*shapes[0]), values(*shapes[1])
    before = calls_of(GEMM), calls_of(BATCHED)
    close(CudaNdarray(a, device=device) @ CudaNdarray(b, device=device), a.astype(float) @ b)
    assert calls_of(BATCHED) - before[1] == batched
    assert calls_of(GEMM) - before[0] == 1 - batched


def test_workspace_is_set_once(device: str) -> None:
    gpuinterop.empty_cache(device)  # so that there is room to keep the workspace
    x, y = CudaNdarray(values(4, 4), device=device), CudaNdarray(values(4, 4), device=device)
    _ = x @ y
    before = calls_of(WORKSPACES)
    for _ in range(10):
        gpuinterop.matmul(x, y, out=y)
    assert calls_of(WORKSPACES) == before
    with gpuinterop.Stream(device):
        close(x @ x, values(4, 4).astype(float) @ values(4, 4))
    assert calls_of(WORKSPACES) > before
    before = calls_of(HEURISTICS)
    for _ in range(10):
        gpuinterop.gemm(x, x, y)
    assert calls_of(HEURISTICS) <= before + 1


def test_sizes_that_cublaslt_refuses(device: str) -> None:
    shapes = (11, 13), (13, 7), (11, 7), (7,)
    a, b, c, row = (CudaNdarray(values(*s), device=device) for s in shapes)
    exact = values(11, 13).astype(float) @ values(13, 7)
    before = [calls_of(i) for i in (GEMM, SEPARATE, BIAS)]
    cublas().fakecublas_refuse(1)
    try:
        close(gpuinterop.gemm(a, b, c, alpha=2, beta=0.5), 2 * exact + 0.5 * values(11, 7))
        close(gpuinterop.gemm(a, b, row, alpha=2), 2 * exact + values(7))
        close(gpuinterop.gemm(a, b, row.reshape((1, 7))), exact + values(7))
    finally:
        cublas().fakecublas_refuse(0)
    after = [calls_of(i) for i in (GEMM, SEPARATE, BIAS)]
    assert after == [before[0] + 3, before[1], before[2]]


def test_rows_are_added_by_the_epilogue(device: str) -> None:
    a, b, stack = (CudaNdarray(values(*s), device=device) for s in ((6, 5), (5, 4), (2, 6, 5)))
    exact, many = (
        values(6, 5).astype(float) @ values(5, 4),
        values(2, 6, 5).astype(float) @ values(5, 4),
    )
    for shape in ((4,), (1, 4), (1, 1, 4)):
        row, host = CudaNdarray(values(*shape), device=device), values(*shape).ravel()
        before = calls_of(BIAS)
        if len(shape) < 3:
            close(gpuinterop.gemm(a, b, row), exact + host)
        close(gpuinterop.gemm(stack, b, row), many + host)
        assert calls_of(BIAS) - before == 1 + (len(shape) < 3)


def test_tf32_is_used_only_on_request(device: str) -> None:
    x = CudaNdarray(values(4, 4), device=device)

    def compute(call) -> int:
        call()
        return calls_of(COMPUTE)

    strict, tf32 = 68, 77  # cublasComputeType_t
    assert compute(lambda: x @ x) == strict
    assert compute(lambda: gpuinterop.matmul(x, x, tf32=True)) == tf32
    with gpuinterop.allow_tf32():
        assert compute(lambda: x @ x) == tf32
        assert compute(lambda: gpuinterop.gemm(x, x)) == tf32
        assert compute(lambda: gpuinterop.gemm(x, x, tf32=False)) == strict
        assert compute(lambda: gpuinterop.gemm(x, x, precision="exact")) == strict
        assert in_thread(compute, lambda: x @ x) == strict
        with gpuinterop.product_precision("exact"):
            assert compute(lambda: x @ x) == strict
    assert compute(lambda: gpuinterop.gemm(x, x, precision="tf32")) == tf32
    before = gpuinterop.set_product_precision("tf32")
    try:
        assert in_thread(compute, lambda: x @ x) == tf32
        assert compute(lambda: gpuinterop.gemm(x, x, tf32=False)) == strict
    finally:
        assert gpuinterop.set_product_precision(before) == "tf32"
    assert compute(lambda: x.dot(x)) == strict


@pytest.fixture
def blackwell(device: str) -> Iterator[None]:
    """Let the device be a Blackwell GPU, which lacks Hopper's instructions."""
    driver.libcuda().fakecuda_set_compute_major(10)
    internals.forget_calls()
    yield
    driver.libcuda().fakecuda_set_compute_major(9)
    cublas().fakecublas_set_newest(78)
    internals.forget_calls()


def test_cublas_emulates_float32_on_blackwell(device: str, blackwell: None) -> None:
    shapes = (6, 5), (5, 4), (6, 4), (4,), (2, 6, 5)
    a, b, c, row, stack = (CudaNdarray(values(*s), device=device) for s in shapes)
    exact, many = (values(*s).astype(float) @ values(5, 4) for s in ((6, 5), (2, 6, 5)))
    products = {
        "plain": (lambda: a @ b, exact),
        "batch": (lambda: stack @ b, many),
        "addend": (lambda: gpuinterop.gemm(a, b, c, alpha=2, beta=0.5), 2 * exact + 0.5 * values(6, 4)),
        "row": (lambda: gpuinterop.gemm(a, b, row), exact + values(4)),
    }  # fmt: skip
    for newest, compute in ((78, 78), (77, 68)):  # cuBLAS before 12.9 has no emulation
        cublas().fakecublas_set_newest(newest)
        internals.forget_calls()
        for product, expected in products.values():
            with gpuinterop.product_precision("tf32x3"):
                close(product(), expected)
            assert calls_of(COMPUTE) == compute
            close(product(), expected)
            assert calls_of(COMPUTE) == 68


def test_devices_do_not_mix(device: str) -> None:
    x, y = CudaNdarray(values(2, 2), device=device), CudaNdarray(values(2, 2), device="cuda:1")
    host = CudaNdarray(values(2, 2), device="cpu")
    for other in (y, host):
        for call in (lambda o=other: x @ o, lambda o=other: gpuinterop.gemm(x, x, o),
                     lambda o=other: gpuinterop.dot(o[0], x)):  # fmt: skip
            with pytest.raises(gpuinterop.DeviceMismatchError):
                call()
        for function in (gpuinterop.matmul, gpuinterop.add):
            with pytest.raises(gpuinterop.DeviceMismatchError, match="out= on"):
                function(x, x, out=other)
    close(y @ y, values(2, 2).astype(float) @ values(2, 2))


def test_strides_beyond_31_bits(device: str) -> None:
    pitch = 4 * (2**31 + 5)
    fake_driver.set_memory(1 << 36)
    # Pages that are never touched are never there.
    memory = gpuinterop.empty(2 * pitch, dtype="int8", device=device)
    a, b = values(2, 3), values(3, 2)
    for i, row in enumerate(a):
        memory[i * pitch : i * pitch + 12] = np.frombuffer(row.tobytes(), np.int8)
    wide = CudaNdarray.from_pointer(memory.ptr, (2, 3), (pitch // 4, 1), base=memory, device=device)
    x = CudaNdarray(b, device=device)
    close(wide @ x, a.astype(float) @ b)
    close(x @ wide, b.astype(float) @ a)
    close(x.T @ wide.T, (a.astype(float) @ b).T)
