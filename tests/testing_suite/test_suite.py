"""The compatibility suite itself: it passes what is sound and finds each fault."""

import types
from dataclasses import replace

import numpy as np
import pytest
from doubles import fake_cudamat, fake_pycuda
from doubles import faulty_libraries as faulty

import gpuinterop as gi
from gpuinterop.converters.plan import Plan
from gpuinterop.testing import LAYOUTS, Bridge, matrix, memory


def layouts_for(check):
    # A leak is looked for with the garbage collector, once a case.
    return ["C", "reversed", "empty"] if check == "released" else None


@pytest.fixture(autouse=True)
def tidy(monkeypatch):
    # These toys free at once; the wait is for libraries that free memory on their own threads.
    monkeypatch.setattr("gpuinterop.testing.verdict._PATIENCE", 0.0)
    yield
    faulty.forget()


def test_a_sound_converter_passes():
    m = matrix([faulty.SOUND], ["cpu"])
    assert m.ok, str(m)
    for layout in LAYOUTS:
        expected = "copied" if LAYOUTS[layout].negative else "shared"
        assert m.outcome(direction="to", layout=layout, dtype="float32") == expected
        expected = "none" if LAYOUTS[layout].negative else "shared"
        assert m.outcome(direction="from", layout=layout, dtype="float32") == expected
    assert m.outcome(direction="to", dtype="uint64") == "refused"


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_legend_shows_how_each_layout_is_made(name):
    layout = LAYOUTS[name]
    made = eval(layout.made_by, {"np": np, "as_strided": np.lib.stride_tricks.as_strided})
    meant = layout.of(np.zeros(layout.count))
    assert made.shape == meant.shape
    assert made.flags.writeable == meant.flags.writeable
    for n, here, there in zip(meant.shape, made.strides, meant.strides, strict=True):
        assert here == there or n == 1 or not meant.size


FAULTS = [
    pytest.param(direction, *row, id=f"{direction}: {fault}")
    for direction, table in (("to", faulty.TO_FAULTS), ("from", faulty.FROM_FAULTS))
    for fault, row in table.items()
]


@pytest.mark.parametrize(("direction", "function", "check"), FAULTS)
def test_every_fault_is_found_in_its_direction_alone(direction, function, check):
    m = matrix(
        [faulty.faulty(direction, function)],
        ["cpu"],
        layouts=layouts_for(check),
        dtypes=["float32"],
    )
    found = {f["check"] for cell in m.select(direction=direction) for f in cell.faults}
    assert check in found, f"{found}\n{m}"
    assert not m.ok
    assert {cell.direction for cell in m.wrong} == {direction}


def test_wrong_prediction_is_found():
    def optimist(x, to, copyif=False):
        return replace(faulty.explain(x, to, copyif), outcome="shared")

    m = matrix([replace(faulty.SOUND, explain=optimist)], ["cpu"], dtypes=["float32"])
    assert {f["check"] for cell in m.wrong for f in cell.faults} == {"forecast"}
    assert {cell.layout for cell in m.wrong} == {"reversed", "mirrored", "flipped"}


@pytest.mark.parametrize(
    ("direction", "function", "outcome"),
    [("to", "plan_to", "shared"), ("from", "plan_from", "copied")],
)
def test_wrong_plan_of_a_registered_converter_is_found(direction, function, outcome, clean):
    module = types.ModuleType("toy_converter")
    module.to_toy, module.from_toy = faulty.to_toy, faulty.from_toy
    module.matches = lambda obj: isinstance(obj, faulty.Toy)
    gi.converters.register(gi.converters.Backend("toy", "toy", converter=module))
    bridge = replace(faulty.SOUND, to=None, from_=None, explain=None)
    sound = matrix([bridge], ["cpu"], dtypes=["float32"])
    assert sound.ok, str(sound)
    setattr(module, function, lambda obj, copyif=False: Plan("toy", outcome))
    wrong = matrix([bridge], ["cpu"], dtypes=["float32"]).wrong
    assert {fault["check"] for cell in wrong for fault in cell.faults} == {"forecast"}
    assert {cell.direction for cell in wrong} == {direction}


def test_prediction_that_copies_is_found():
    def busy(x, to, copyif=False):
        if isinstance(x, gi.CudaNdarray):
            x.copy().to_device("cpu")
            faulty.to_toy(x, True)
        return faulty.explain(x, to, copyif)

    m = matrix([replace(faulty.SOUND, explain=busy)], ["cpu"], dtypes=["float32"])
    assert "forecast" in {f["check"] for cell in m.wrong for f in cell.faults}


def test_an_array_that_its_library_cannot_read_is_a_fault_of_that_case_only():
    def values(toy):
        if 0 in toy.window.strides and toy.window.size:
            raise RuntimeError("no broadcast arrays here")
        return toy.window

    m = matrix([replace(faulty.SOUND, values=values)], ["cpu"], dtypes=["float32"])
    assert {cell.layout for cell in m.wrong} == {"broadcast"}
    assert "no broadcast arrays here" in str(m.wrong[0])


@pytest.mark.parametrize("address", [0, faulty.NOWHERE, 1 << 62, -8])
def test_bridge_that_reports_a_wrong_address_is_found(address):
    m = matrix([replace(faulty.SOUND, address=lambda toy: address)], ["cpu"], dtypes=["float32"])
    for direction in ("to", "from"):
        faults = [f for cell in m.select(direction=direction) for f in cell.faults]
        assert any(f["check"] == "address" and hex(address) in f["got"] for f in faults), m
    assert {cell.outcome for cell in m.select(layout="empty")} == {"shared"}


def test_copy_is_not_checked_against_unreported_strides():
    """Packed, it is shorter than the window it was made of."""
    looked = []
    real = memory._read

    def read(address, nbytes, *rest):
        looked.append((address, nbytes))
        return real(address, nbytes, *rest)

    copies = set()

    def to(x, copyif=False):
        made = faulty.to_toy(x, copyif)
        if LAYOUTS["reversed"].shape == x.shape and x.strides[0] < 0:
            copies.add(made.window.__array_interface__["data"][0])
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "_read", read)
        m = matrix([replace(faulty.SOUND, to=to, strides=None, make=None)], ["cpu"],
                   layouts=["reversed"], dtypes=["float32"])  # fmt: skip
    assert m.ok
    assert copies
    assert {n for address, n in looked if address in copies} == {4}


def test_missing_copy_is_not_written_to():
    written = []
    elsewhere = np.full(64, 7.0, np.float32)

    def to(x, copyif=False):
        faulty.to_toy(x, copyif)
        return faulty.Toy(elsewhere[: x.size].reshape(x.shape))

    careless = replace(faulty.SOUND, to=to, make=None, write=lambda *_: written.append(1))
    m = matrix([careless], ["cpu"], layouts=["C", "reversed"], dtypes=["float32"])
    assert {cell.outcome for cell in m.cells} == {"wrong"}
    assert not written


def test_a_bridge_of_one_direction_is_tried_in_it():
    m = matrix([replace(faulty.SOUND, make=None)], ["cpu"], dtypes=["float32"])
    assert m.ok
    assert {cell.direction for cell in m.cells} == {"to"}
    back = Bridge("toy", from_=faulty.from_toy, make=faulty.make, address=faulty.SOUND.address,
                  values=faulty.SOUND.values)  # fmt: skip
    m = matrix([back], ["cpu"], dtypes=["float32"])
    assert {cell.direction for cell in m.cells} == {"from"}
    # Without `write` the toy's arrays count as immutable, so the imported array must be read-only too.
    assert {f["check"] for cell in m.wrong for f in cell.faults} == {"readonly"}


@pytest.mark.parametrize(
    "nothing",
    [
        Bridge("typo"),
        Bridge("typo", from_=faulty.from_toy),
        Bridge("toy", make=faulty.make),
    ],
)
def test_a_bridge_without_anything_to_try_is_an_error(nothing):
    with pytest.raises(gi.ArgumentTypeError, match="something to try") as caught:
        matrix([nothing], ["cpu"])
    assert nothing.name in caught.value.got
    assert "torch" in caught.value.expected


DENSE = {"C", "offset", "size-1", "empty", "0-d"}


@pytest.mark.parametrize(
    ("library", "made", "shared"),
    [("cudamat", "F", {"F", "empty"}), ("gnumpy", "C", DENSE), ("buffer", "C", {*DENSE, "readonly"})],
)  # fmt: skip
@pytest.mark.parametrize("copies", [False, True])
def test_libraries_that_share_one_order(monkeypatch, library, made, shared, copies):
    npmat = fake_cudamat.npmat(copies=copies)
    fake_pycuda.installed(monkeypatch, npmat, fake_cudamat.gnumpy(npmat))
    m = matrix([library], ["cpu"], dtypes=["float32", "int8", "complex64"])
    assert m.ok, str(m)
    assert m.outcome(direction="from", layout=made, dtype="float32") == "shared"
    found = m.select(direction="to", dtype="float32")
    assert {c.layout for c in found if c.outcome == "shared"} == shared
    copied = {c.layout for c in found if c.outcome == "copied"}
    assert {"sliced", "reversed", "mirrored", "broadcast"} <= copied
