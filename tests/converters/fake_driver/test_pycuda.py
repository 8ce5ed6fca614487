"""PyCUDA's converter on objects with its documented attributes."""

import atexit
import sys
import types

import numpy as np
import pytest
from doubles import driver, fake_pycuda
from doubles.fake_pycuda import values
from helpers.cases import agree, host
from helpers.profile import functions_of
from helpers.threads import in_thread

import gpuinterop as gi
from gpuinterop import converters


def test_to_gpuarray_shares(pycuda, gpu):
    x = gpu(host(4, 5, 3))
    g = gi.to_gpuarray(x)
    assert type(g) is pycuda.gpuarray.GPUArray
    assert (g.ptr, g.shape, g.dtype, g.strides) == (x.gpudata, x.shape, np.float32, (60, 12, 4))
    assert g.base is x
    assert np.array_equal(np.asarray(g.strides), np.asarray(x._strides) * 4)
    x[0, 0, 0] = 99
    x.sync()
    assert gi.shares_memory(g, x)


@pytest.mark.parametrize("key", [np.s_[::2], np.s_[::-2, 1:]])
def test_strided_on_request(pycuda, gpu, key):
    x = gpu(host(4, 6))[key]
    g = gi.to_gpuarray(x, strided=True)
    assert (g.ptr, g.strides) == (x.gpudata, tuple(x.strides))
    assert gi.explain(x, "pycuda", strided=True).shared
    assert np.array_equal(values(gi.from_any(g)), host(4, 6)[key])


def test_every_form_of_gpudata(pycuda):
    whole = host(2, 3)
    g = pycuda.gpuarray.to_gpu(whole)
    for data in (g.gpudata, int(g.gpudata), fake_pycuda.PointerHolderBase(g.gpudata)):
        other = pycuda.gpuarray.GPUArray((2, 3), "float32", base=g, gpudata=data)
        assert np.array_equal(values(gi.to_cudandarray(other)), whole)
    empty = pycuda.gpuarray.GPUArray((0, 3), "float32")
    assert empty.gpudata is None
    assert gi.to_cudandarray(empty).shape == (0, 3)


def test_a_slice_that_pycuda_made_too_long_is_refused(pycuda):
    g = pycuda.gpuarray.to_gpu(host(4))
    # a[3:1] of PyCUDA has two elements, counted from element 3: one lies outside.
    odd = pycuda.gpuarray.GPUArray((2,), "float32", base=g, gpudata=int(g.gpudata) + 12)
    with pytest.raises(gi.ExchangeError, match="allocation"):
        gi.to_cudandarray(odd)
    assert gi.explain(odd).refused
    last = pycuda.gpuarray.GPUArray((1,), "float32", base=g, gpudata=int(g.gpudata) + 12)
    assert values(gi.to_cudandarray(last)).tolist() == [3]


MALFORMED = {
    "more strides than axes": {"strides": (4, 4)},
    "a stride that is no int": {"strides": (4.5,)},
    "no shape": {"shape": object()},
    "a negative shape": {"shape": (-4,)},
    "a huge shape": {"shape": (2**64,)},
    "no dtype": {"dtype": "floaty"},
    "a dtype of records": {"dtype": np.dtype("f4,i4")},
    "an address of nothing": {"gpudata": 4096},
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_array_is_refused(pycuda, case):
    g = pycuda.gpuarray.to_gpu(host(4))
    vars(g).update(MALFORMED[case])
    plan = agree(g)[0]
    assert plan.refused
    for call in (gi.from_dlpack, gi.asarray, gi.sum, lambda g: gi.ones(4, device="cuda") + g):
        with pytest.raises(plan.error) as caught:
            call(g)
        found = caught.value
        assert (found.expected, found.got, found.fix) == (plan.reason, plan.got, plan.fix)


def test_a_context_of_its_own_is_refused_both_ways(pycuda, gpu, monkeypatch):
    x = gpu(host(4))
    monkeypatch.setitem(sys.modules, "pycuda.autoinit", types.ModuleType("pycuda.autoinit"))
    with driver.Current(driver.new_context()):
        with pytest.raises(gi.ContextError, match=r"pycuda\.autoprimaryctx") as raised:
            gi.to_gpuarray(x)
        assert "pycuda.autoinit" in raised.value.got
        plan = gi.explain(x, "pycuda")
        assert plan.refused
        assert plan.code == "context"
        g = pycuda.gpuarray.to_gpu(host(4))
    with pytest.raises(gi.ContextError, match=r"pycuda\.autoprimaryctx"):
        gi.to_cudandarray(g)


def test_no_context_at_all_names_init(monkeypatch, gpu):
    fake_pycuda.installed(monkeypatch, fake_pycuda.pycuda())
    with pytest.raises(gi.ContextError, match=r"pycuda\.init\(\)"):
        gi.to_gpuarray(gpu(host(4)))


def test_init_uses_the_primary_context_and_undoes_it(monkeypatch, gpu):
    modules = fake_pycuda.pycuda()
    fake_pycuda.installed(monkeypatch, modules)
    made = converters.pycuda.init()
    try:
        assert converters.pycuda.init() is made
        assert gi.to_gpuarray(gpu(host(4))).size == 4
    finally:
        atexit.unregister(converters.pycuda._undo)
        converters.pycuda._undo(made)
    # The caches were cleared while the context was still there.
    assert modules["pycuda.tools"].cleared == [1]
    assert modules["pycuda.driver"].Context.get_current() is None


def test_init_is_refused_in_a_thread_without_cleanup(monkeypatch):
    fake_pycuda.installed(monkeypatch, fake_pycuda.pycuda())
    with pytest.raises(gi.ContextError, match="the main thread") as caught:
        in_thread(converters.pycuda.init)
    assert "retain_primary_context()" in caught.value.fix


def test_init_refuses_a_context_of_its_own(monkeypatch):
    modules = fake_pycuda.pycuda()
    fake_pycuda.installed(monkeypatch, modules)
    modules["pycuda.driver"].Device(0).make_context().push()
    try:
        with pytest.raises(gi.ContextError):
            converters.pycuda.init()
    finally:
        modules["pycuda.driver"].Context.pop()


def test_kernel_wrapper_refuses_and_copies(pycuda, gpu):
    seen = []

    def launch(*args, **options):
        seen.append((args, options))
        # A "kernel" that adds 1 to three floats at its first argument.
        ptr = int(args[0])
        fake_pycuda.write(ptr, fake_pycuda.read(ptr, 3) + 1)

    x = gpu(host(6))
    kernel = converters.pycuda.kernel(launch)
    kernel(x[:3], np.int32(3), block=(3, 1, 1))
    args, options = seen[-1]
    assert (int(args[0]), args[1], options) == (x.ptr, 3, {"block": (3, 1, 1)})
    assert isinstance(args[0], np.uintp)
    with pytest.raises(ValueError, match="argument 0"):
        kernel(x[::2], block=(3, 1, 1))
    with gi.count_copies() as c:
        converters.pycuda.kernel(launch, copyif=True)(x[::2], block=(3, 1, 1))
    assert c.count == 2  # in, and back out
    with pytest.raises(gi.DeviceMismatchError, match="argument 1"):
        kernel(x, converters.from_numpy(host(3)), block=(1, 1, 1))
    x.readonly = True
    with pytest.raises(gi.ReadOnlyError):
        kernel(x[:3], block=(3, 1, 1))
    converters.pycuda.kernel(launch, allow_readonly=True)(x[:3], block=(3, 1, 1))


@pytest.mark.parametrize("stream", [0, object()])
def test_kernel_wrapper_error_lists_the_streams_that_pycuda_accepts(pycuda, gpu, stream):
    launch = converters.pycuda.kernel(lambda *args, **options: pytest.fail("launched"))
    for args in ((gpu(host(3)),), ()):
        with pytest.raises(gi.StreamError) as raised:
            launch(*args, block=(1, 1, 1), stream=stream)
        assert raised.value.where == "pycuda.kernel"
        assert "omit stream" in raised.value.fix


def test_kernel_wrapper_launches_on_the_stream_named(pycuda, gpu):
    x, side = gpu(host(3)), gi.Stream()
    seen = []
    launch = converters.pycuda.kernel(lambda *args, **options: seen.append(options["stream"]))
    named = types.SimpleNamespace(handle=side.handle)
    for stream, handle in ((named, side.handle), (None, 1), (types.SimpleNamespace(handle=0), 1)):
        launch(x, block=(1, 1, 1), stream=stream)
        assert seen.pop() is stream
        assert x._stream == handle


def test_kernel_wrapper_sees_the_strides_of_gpuarrays(pycuda):
    whole = host(4, 6)
    g = pycuda.gpuarray.to_gpu(whole)
    kernel = converters.pycuda.kernel(lambda *args, **options: None)
    with pytest.raises(ValueError, match="C-contiguous"):
        kernel(g.view_of(whole, np.s_[::2]), block=(1, 1, 1))


@pytest.mark.parametrize("convert", [converters.from_pycuda, gi.from_any, gi.to_cudandarray])
def test_second_import_of_a_class_plans_nothing(pycuda, convert):
    g = pycuda.gpuarray.to_gpu(host(4, 6))
    first = convert(g)
    own = {"memory", "_address", "__int__"}
    own |= {"to_cudandarray", "require_bool", "refuse_copy_keyword", "call"}
    assert set(functions_of(lambda: convert(g))) <= own
    again = convert(g)
    assert (again.ptr, again.strides, again.base) == (first.ptr, first.strides, g)
    g.strides = (24, 2)  # only a plan has the words, and only for this object
    with pytest.raises(gi.ContiguityError, match="whole elements"):
        convert(g)
    assert convert(pycuda.gpuarray.to_gpu(host(3))).shape == (3,)


def test_subclass_of_gpuarray_is_planned_each_time(pycuda):
    class Own(pycuda.gpuarray.GPUArray):
        pass

    converters.from_pycuda(pycuda.gpuarray.to_gpu(host(3)))
    for _ in range(2):
        g = Own((3,), np.float32)
        assert "plan_in" in functions_of(lambda g=g: converters.from_pycuda(g))


def test_second_export_plans_nothing(pycuda, gpu):
    x = gpu(host(4, 6))
    for convert in (gi.to_gpuarray, lambda x: gi.to(x, "pycuda"), lambda x: gi.to(x, "gpuarray")):
        convert(x)
        assert not {"plan_out", "convert"}.intersection(functions_of(lambda c=convert: c(x)))
