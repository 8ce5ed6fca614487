"""Producers and array dictionaries that misbehave: a Python error, or what they offer besides."""

import gc

import numpy as np
import pytest
from peers import ADDRESS, PINNED, Producer, capsule, interface

import gpuinterop as gi


def take(obj, **options):
    return gi.from_dlpack(obj, cls=gi.GpuArray, **options)


# ---- __dlpack__ and __dlpack_device__ -------------------------------------------------------------

PRODUCERS = {
    "None as capsule": (lambda: Producer(lambda **_: None), TypeError, "capsule"),
    "an array as capsule": (lambda: Producer(lambda **_: np.zeros(3)), TypeError, "capsule"),
    "another kind of device": (lambda: Producer(device=(10, 0)), BufferError, "device 0 of DLPack type 10"),
    "no protocol": (lambda: [1.0, 2.0], TypeError, "__cuda_array_interface__"),
    **{
        f"__dlpack_device__ {claim!r}": (
            lambda claim=claim: Producer(device=claim), TypeError, "__dlpack_device__"
        )
        for claim in (None, 1, (1,), (1, 0, 0), ("cpu", 0), (1.0, 0), (2**40, 0), [1, 0])
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCERS)
def test_malformed_producer_is_refused(name):
    make, error, word = PRODUCERS[name]
    with pytest.raises(error) as caught:
        take(make())
    assert word in str(caught.value)


@pytest.mark.parametrize(("says", "holds"), [(PINNED, (1, 0)), ((1, 0), PINNED), (PINNED, PINNED)])
def test_pinned_memory_is_host_memory(says, holds):
    assert take(Producer(lambda **_: capsule(device=holds), device=says)).ptr == ADDRESS


def test_read_only_memory_stays_so():
    x = take(capsule(flags=1))
    for view in (x, x[1:]):
        assert view.readonly
        assert not np.from_dlpack(view).flags.writeable
        assert not np.asarray(view).flags.writeable
        with pytest.raises(gi.ReadOnlyError):
            view[...] = 0
    with pytest.raises(BufferError, match="read-only"):
        x.__dlpack__()  # an old consumer's call


def test_requested_copy_is_made_by_producer_or_gpuinterop(freed):
    x = take(Producer(), copy=True)
    assert (x.ptr == ADDRESS, x.base, freed()) == (False, None, 1)
    assert take(Producer(flags=2), copy=True).ptr == ADDRESS


def test_older_signatures_are_called_as_they_are():
    for older in (lambda stream=None: capsule(legacy=True), lambda: capsule(legacy=True)):
        assert take(Producer(older)).ptr == ADDRESS


def test_type_error_from_inside_a_producer_is_its_own():
    def adds(**_):
        raise TypeError("cannot add a str to an int")

    with pytest.raises(gi.ExchangeError, match="TypeError: cannot add a str"):
        take(Producer(adds))
    # What one object did is not kept for its class.
    assert take(Producer(lambda **_: capsule(flags=1))).readonly


def test_a_class_belongs_to_a_library_by_the_whole_name_of_its_module():
    # What JAX owns is imported read-only; "abc" is as long as "jax".
    for module, readonly in (("jax.maker", True), ("abc", False), ("jaxes", False)):
        maker = type("Maker", (Producer,), {"__module__": module})
        assert take(maker(lambda **_: capsule())).readonly is readonly


# ---- dictionaries ---------------------------------------------------------------------------------

CAI, NUMPY = "__cuda_array_interface__", "__array_interface__"
# Entries of a dictionary, None for one that is missing; refused for the CUDA interface, and for NumPy's, which
# NumPy reads it and words the error. Without a driver the shape of CUDA memory is not read.
BOTH = [{"data": data} for data in ((8,), (None, False), ("8", False))]
BOTH += [{"typestr": 4}, {"mask": 1}]
CUDA_ONLY = [
    *[{key: None} for key in ("shape", "typestr", "version", "data")],
    {"data": ADDRESS},
    *[{"version": version} for version in (-1, 4)],
    *[{"stream": stream} for stream in (0, "1")],
]
NUMPY_ONLY = [
    {"shape": None},  # on which NumPy 2.1 ends the process
    *[{"shape": shape} for shape in ((-2, 3), (2**70, 3))],
    {"strides": (4,)},
    {"strides": (12, 6)},
    *[{"typestr": typestr} for typestr in ("<x4", "<f4\0i8")],
    {"data": (-8, False)},
]
DICTIONARIES = [
    *[(CAI, TypeError, entries) for entries in [*BOTH, *CUDA_ONLY]],
    *[(NUMPY, BufferError, entries) for entries in [*BOTH, *NUMPY_ONLY]],
]


@pytest.mark.parametrize(("name", "error", "entries"), DICTIONARIES)
def test_malformed_dictionary_is_refused(name, error, entries):
    drop = [key for key, value in entries.items() if value is None]
    for obj in (interface(name, drop, **entries), type("Odd", (), {name: 3})()):
        with pytest.raises(error):
            take(obj)


# ---- what runs Python code in the middle ----------------------------------------------------------

WORKING = {"shape": (2, 3), "typestr": "<f4", "data": (ADDRESS, False), "version": 3}


def interrupt(self):
    raise KeyboardInterrupt


class InterruptsMro(type):
    __mro__ = property(interrupt)


INTERRUPTED = {
    "__array_struct__": lambda: type("C", (), {NUMPY: WORKING, "__array_struct__": property(interrupt)})(),
    "metaclass": lambda: InterruptsMro("C", (Producer,), {})(),
}  # fmt: skip


@pytest.mark.parametrize("name", INTERRUPTED)
def test_interrupt_passes(name):
    with pytest.raises(KeyboardInterrupt):
        take(INTERRUPTED[name]())


def test_errors_of_all_protocols_are_listed():
    class Stubborn:
        def __dlpack__(self, **_):
            raise BufferError("not today")

        def __dlpack_device__(self):
            return (1, 0)

        @property
        def __cuda_array_interface__(self):
            raise RuntimeError("nor this way")

    for call in (gi.from_any, gi.from_dlpack):
        with pytest.raises(gi.ExchangeError) as caught:
            call(Stubborn())
        assert "BufferError: not today" in str(caught.value)
        assert "RuntimeError: nor this way" in str(caught.value)
    assert caught.value.where == "from_dlpack"


def test_class_may_change_while_its_object_is_read():
    n = np.arange(3, dtype=np.float32)

    def make(after):
        def changed(self, answer):
            self.__class__ = after
            gc.collect()
            return answer

        asks = {
            "__dlpack__": lambda self, **_: changed(self, n.__dlpack__()),
            "__dlpack_device__": lambda self: changed(self, (1, 0)),
        }
        return type("Before", (), asks)()

    for _ in range(20):
        after = type("After", (), {"__dlpack__": lambda self, **_: n.__dlpack__()})
        assert take(make(after)).ptr == n.ctypes.data


# ---- shapes that change during an export ----------------------------------------------------------

SHAPE = (2,) * 6  # more than five dimensions lie in a block of their own, which a change frees


def test_argument_of_an_export_may_reshape_the_array():
    class Reshaping:
        def __index__(self):
            x.shape = (64,)
            return 3

    host = np.arange(64, dtype="float32").reshape(SHAPE)
    x = gi.GpuArray(host, device="cpu")
    y = gi.from_dlpack(x.__dlpack__(max_version=(1, Reshaping())))
    assert y.tolist() == host.ravel().tolist()


@pytest.mark.parametrize("items", [lambda o: [o], lambda o: [[0.0], [o]], lambda o: (1.0, o)])
def test_lists_of_malformed_dictionaries_are_refused(items):
    x = gi.ones((2, 3), device="cpu")
    values = items(interface(NUMPY, ["shape"]))
    for use in (
        gi.asarray, x.__getitem__, x.take, x.put, lambda v: x.sum(where=v), lambda v: x.__setitem__(0, v),
        lambda v: np.isclose(x, v), lambda v: np.broadcast_arrays(x, v), lambda v: np.atleast_1d(x, v),
        lambda v: np.copyto(x, v), lambda v: np.add.outer(v, x), gi.arange,
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, IndexError)):
            use(values)
