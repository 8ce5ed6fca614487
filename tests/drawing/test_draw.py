"""Pictures of memory: each cell compared with the address that NumPy reports for the element in it."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided, sliding_window_view

import gpuinterop as gi
from gpuinterop.testing import LAYOUTS

SVG = "{http://www.w3.org/2000/svg}"
ROW = re.compile(r" *\+(\d+) (.*?)( \.\.)?$")


def whole(n: int) -> np.ndarray:
    return np.zeros(n, "float32")


VIEWS = {
    name: layout.of(np.zeros(layout.count, "float32"))
    for name, layout in LAYOUTS.items()
    if layout.size
}
VIEWS |= {
    "both": whole(24).reshape(4, 6)[::2, ::-1],
    "4-d": whole(48).reshape(2, 3, 2, 4).transpose(3, 1, 0, 2)[:, ::-1],
    "windows": sliding_window_view(whole(9), 4)[::-1],
    "zero strides alone": np.broadcast_to(np.float32(1), (2, 3)),
    "large": whole(10**6).reshape(1000, 1000)[::2, ::-1],
    "large vector": whole(10**6)[::-1],
    "far apart": whole(10**5)[::1000],
    "large and overlapping": as_strided(whole(3000), (1000, 1000), (4, 8)),
    "part of a large owner": whole(10**6)[5000:5005],
    "rows that do not fit": whole(2000)[: 1 << 10].reshape(2, 2, 256)[:, ::-1],
    "halves of an element": np.zeros(5, [("a", "i2"), ("b", "f4")])["b"],
    "64 axes": np.broadcast_to(whole(1), (2,) * 60 + (1,) * 4),
    "large numbers": np.broadcast_to(whole(2), (10**5, 10**5, 2)),
}
CUT = {"large", "large vector", "far apart", "large and overlapping", "rows that do not fit"}


def root_of(x: np.ndarray) -> np.ndarray:
    while getattr(x, "base", None) is not None:
        x = x.base
    return x


def address(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


def rows_of(text: str) -> list[tuple[int, list[str]]]:
    found = [ROW.match(line) for line in text.splitlines()]
    return [(int(row[1]), row[2].split()) for row in found if row]


def unit_of(x: np.ndarray, start: int) -> int:
    return int(np.gcd.reduce([x.itemsize, start, *x.strides]))


def check_cells(x: np.ndarray, text: str, owner: np.ndarray | None = None) -> int:
    """Check that each element in a picture is in the cell of its address, and that gaps hold no element."""
    begin = address(root_of(x) if owner is None else owner)
    unit = unit_of(x, address(x) - begin)
    small = x.size <= 10**4
    # What each byte holds; of a large array only what the labels name is compared.
    holders: dict[int, list[tuple[int, ...]]] = {}
    for index in np.ndindex(x.shape) if small else ():
        at = address(x) - begin + sum(i * s for i, s in zip(index, x.strides, strict=True))
        for byte in range(at, at + x.itemsize, unit):
            holders.setdefault(byte, []).append(index)
    named = 0
    for offset, labels in rows_of(text):
        for column, label in enumerate(labels):
            place = offset + column * unit
            if label == ".":
                assert place not in holders
                continue
            name, _, count = label.partition("x")
            index = tuple(map(int, re.findall(r"\d+", name)))
            if len(index) < x.ndim:  # the place in C order
                index = tuple(int(i) for i in np.unravel_index(index[0], x.shape))
            at = address(x[(*index, ...)]) - begin
            assert at <= place < at + x.itemsize
            if small:
                assert (index, int(count or 1)) == (holders[place][0], len(holders[place]))
            named += 1
    return named


@pytest.mark.parametrize("name", VIEWS)
def test_each_cell_holds_the_element_of_its_address(name):
    x = VIEWS[name]
    text = str(gi.draw(x))
    assert all(len(line) <= 80 for line in text.splitlines())
    cells = np.unique([address(x[i]) for i in np.ndindex(x.shape)]).size if x.size < 100 else 1
    assert check_cells(x, text) >= cells
    cut = re.search(r"drawn: the first (\d+) of (\d+) (rows|cells)", text)
    assert bool(cut) == (name in CUT)
    if cut:
        assert int(cut[1]) < int(cut[2])


@pytest.mark.parametrize(
    ("x", "lengths"),
    [
        (whole(12).reshape(3, 4), [4, 4, 4]),
        (whole(12).reshape(3, 4).T, [4, 4, 4]),
        (whole(12).reshape(2, 3, 2)[::-1], [6, 6]),
        (np.zeros((3, 4), "float32")[1:, 1:3], [4, 4, 4]),
        (np.zeros((3, 4), "float32").diagonal(), [4, 4, 4]),
        (np.zeros((3, 4), "float32").reshape(12)[1:9], [12]),  # rows would cut it
        (whole(14)[2:].reshape(3, 4), [14]),
        (as_strided(whole(8), (3, 4), (8, 4)), [8]),  # overlapping
        (whole(14)[::2], [14]),
        (whole(18).reshape(9, 2), [18]),  # too many rows
        (whole(3).reshape(3, 1), [3]),
    ],
)
def test_a_short_picture_has_a_row_for_each_index_of_an_axis(x, lengths):
    drawing = gi.draw(x)
    assert [len(row) for _, row in rows_of(str(drawing))] == lengths
    assert check_cells(x, str(drawing)) == x.size or x.strides == (8, 4)
    check_svg(drawing.svg)


def test_only_a_cut_row_ends_in_dots():
    rows = [line for line in str(gi.draw(whole(3000)[::1000])).splitlines() if ROW.match(line)]
    assert [line.endswith(" ..") for line in rows] == [True, True, False]


@given(st.data())
def test_cells_of_random_views(data):
    shape = data.draw(st.lists(st.integers(1, 5), max_size=4))
    x = np.zeros(shape, "int16")
    keys = [
        slice(None),
        slice(None, None, 2),
        slice(None, None, -1),
        slice(1, None),
        slice(None, None, -2),
    ]
    view = x[tuple(data.draw(st.sampled_from(keys)) for _ in shape)]
    view = view.transpose(data.draw(st.permutations(range(view.ndim))))
    text = str(gi.draw(view))
    assert (check_cells(view, text) > 0) == (view.size > 0)
    check_svg(gi.draw(view).svg)


def check_svg(document: str) -> tuple[list[str], int]:
    """Check the alternative text, and that shapes are inside; return plain texts and the number of gaps."""
    root = ElementTree.fromstring(document)
    assert (root.get("role"), root.get("aria-label")) == ("img", root.find(f"{SVG}title").text)
    assert root.find(f"{SVG}desc").text
    _, _, width, height = map(float, root.get("viewBox").split())
    gaps = 0
    for shape in root.iter(f"{SVG}rect"):
        x, y = float(shape.get("x", 0)), float(shape.get("y", 0))
        assert min(x, y) >= 0
        assert x + float(shape.get("width")) <= width
        assert y + float(shape.get("height")) <= height
        gaps += shape.get("class") == "gi-gap-fill"
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.get("x")) <= width
        assert 0 < float(text.get("y")) <= height
    return [t.text for t in root.iter(f"{SVG}text") if not t.get("font-weight")], gaps


@pytest.mark.parametrize("name", VIEWS)
def test_both_forms_show_the_same_cells(name):
    drawing = gi.draw(VIEWS[name])
    texts, gaps = check_svg(drawing.svg)
    labels = [label for _, row in rows_of(str(drawing)) for label in row]
    if "drawn:" not in str(drawing):
        wanted = [label.split("x")[0] for label in labels if label != "."]
        assert [text for text in texts if text in wanted] == wanted
        assert gaps == labels.count(".")
    for line in str(drawing).splitlines():
        if line.startswith("axis "):
            assert line in texts


@pytest.mark.parametrize(
    ("x", "steps"),
    [
        (whole(24).reshape(4, 6)[::2, ::-1], ["12 cells forward", "1 cell back"]),
        (np.broadcast_to(whole(3), (2, 3)), ["step 0: all in the same cells", "1 cell forward"]),
        (whole(3)[:, None], ["1 cell forward", "length 1, no step"]),
        (whole(0).reshape(0, 4), ["length 0, no step", "length 4, no step"]),
        (whole(10**6).reshape(100, 100, 100), ["10000 cells forward", "100 cells forward, out of the picture",
                                               "1 cell forward"]),
    ],
)  # fmt: skip
def test_the_steps_of_axes(x, steps):
    lines = [line for line in str(gi.draw(x)).splitlines() if line.startswith("axis ")]
    assert len(lines) == len(steps)
    assert all(line.endswith(step) for line, step in zip(lines, steps, strict=True))


def test_arrays_without_elements_and_without_axes():
    assert "no cells: the array is empty" in str(gi.draw(whole(0)))
    assert check_svg(gi.draw(whole(0)).svg)[1] == 0
    assert rows_of(str(gi.draw(np.float32(1)[()].reshape(())))) == [(0, ["()"])]


def test_the_owner_is_named():
    host = whole(24).reshape(4, 6)
    x = gi.from_any(host)
    assert "shares 96 bytes owned by a numpy.ndarray of shape (24,)" in str(x[1:].draw())
    assert "element 0,0 is at byte 24" in str(x[1:].draw())
    own = gi.zeros((2, 3), device="cpu")
    assert "owns 24 bytes" in str(own.draw())
    assert "owned by a CudaNdarray of shape (2, 3)" in str(own.T.draw())
    assert "read-only" in str(gi.broadcast_to(own, (4, 2, 3)).draw())


def test_other_arrays_and_exports_are_counted():
    own = gi.zeros((2, 3), device="cpu")
    assert "shared with" not in str(own.draw())
    view = own[::-1]
    assert "\nshared with 1 other array or export\n" in str(own.draw())
    assert "shared with" not in str(view.draw())  # but with its owner, which the line above names
    exported = [own.__dlpack__(), view.T]
    assert "\nshared with 3 other arrays or exports\n" in str(own.draw())
    assert "\nshared with 2 other arrays or exports\n" in str(view.draw())
    del exported
    assert "shared with" not in str(view.draw())
    readers = [np.asarray(own), memoryview(own), gi.to(own, "numpy")]
    assert "\nshared with 4 other arrays or exports\n" in str(own.draw())
    del readers
    assert "shared with" not in str(view.draw())
    x = gi.from_any(whole(3))
    assert "shared with" not in str(x.draw())
    assert "\nshared with 1 other array or export\n" in str(x[1:].draw())
    # Memory at an address has no count of its owner's views.
    wrapped = gi.GpuArray.from_pointer(own.ptr, (6,), "float32", base=own, device="cpu")
    assert "owned by a CudaNdarray of shape (2, 3)" in str(wrapped.draw())
    assert "shared with" not in str(wrapped.draw())


@pytest.mark.torch
def test_the_owner_of_another_library():
    torch = pytest.importorskip("torch")
    t = torch.zeros(4, 6)
    assert "owned by a torch.Tensor of shape (4, 6)" in str(gi.from_any(t).T.draw())
    assert check_cells(t[1:, ::2].numpy(), str(gi.from_any(t)[1:, ::2].draw()), t.numpy()) == 9
    assert "\nspans 96 bytes\n" in str(gi.draw(t))
    assert rows_of(str(gi.draw(t.T))) == rows_of(str(gi.draw(t.numpy().T)))


def test_a_refusal_is_marked():
    x = gi.zeros((2, 3), device="cpu")[:, ::-1]
    drawing = x.draw(to="buffer")
    why = gi.explain(x, "buffer")
    assert why.axis is not None
    marked = [line for line in str(drawing).splitlines() if "at fault" in line]
    assert [line.partition(":")[0] for line in marked] == [f"axis {why.axis}"]
    assert str(why).splitlines()[0] in str(drawing)
    root = ElementTree.fromstring(drawing.svg)
    red = {node.text for node in root.iter(f"{SVG}text") if node.get("class") == "gi-fault-fill"}
    assert {str(why.axis), str(why).splitlines()[0]} < red
    assert str(x.draw(to="numpy")) == f"{x.draw()}\nto_numpy: shared"
    assert "gi-fault-fill" not in x.draw(to="numpy").svg
    with pytest.raises(TypeError):
        gi.draw(object())


def test_a_drawing_is_saved(tmp_path):
    drawing = gi.zeros(3, device="cpu").draw()
    drawing.save(tmp_path / "x.svg")
    drawing.save(str(tmp_path / "x.txt"))
    assert (tmp_path / "x.svg").read_text() == drawing.svg == drawing._repr_svg_()
    assert (tmp_path / "x.txt").read_text() == f"{drawing}\n" == f"{drawing!r}\n"


@pytest.mark.parametrize("name", ["x.png", "x.svg.gz", "x.PDF"])
def test_a_drawing_is_not_saved_under_the_suffix_of_another_format(tmp_path, name):
    drawing = gi.zeros(3, device="cpu").draw()
    with pytest.raises(gi.ArgumentTypeError, match=r"(?s)\.svg.*fix: write x(\.svg){1,2}$"):
        drawing.save(tmp_path / name)
    assert not list(tmp_path.iterdir())
    drawing.save(tmp_path / "x.SVG")
    assert (tmp_path / "x.SVG").read_text() == drawing.svg


def test_memory_that_jax_reads_later_is_marked():
    pytest.importorskip("jax")
    x = gi.zeros(64, device="cpu")
    lent, words = gi.to(x, "jax"), "shared with a library that reads it later"
    assert words in str(x.draw())
    assert words in x[::2].draw().svg
    del lent
    x.fill(1)  # waits until JAX has returned the memory
    assert words not in str(x.draw())


def test_an_unknown_library_is_refused_by_draw():
    with pytest.raises(gi.GpuInteropError, match=r"^gpuinterop\.draw: expected the name of a lib"):
        gi.zeros(3, device="cpu").draw(to="trch")


def test_notebooks_show_the_picture_and_the_values(device):
    x = gi.full((2, 3), 7, "int32", device=device)[:, ::-1]
    with gi.no_copies():
        page = x._repr_html_()
        large = gi.empty((1 << 10, 1 << 10), device=device)._repr_html_()
    assert page.startswith("<svg")
    assert ("7, 7, 7" in page) == (device == "cpu")
    assert f"on {device}" in page
    assert large.startswith("<svg")
    assert len(large) < 20_000


def test_notebooks_show_arrays_that_have_no_picture():
    with gi.capture(device="cpu"):
        y = gi.zeros((2, 2), device="cpu") + 1
        assert "CaptureError" in y._repr_html_() or "replay" in y._repr_html_()
    x = gi.zeros((2, 3), device="cpu")
    x._set_stride(0, 1000)
    assert x._repr_html_().startswith("<pre>CudaNdarray")
