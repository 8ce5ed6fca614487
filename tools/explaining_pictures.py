"""Compose the pictures of the pages that explain: docs/images/*.svg. Each picture has one message, its title."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpuinterop import zeros
from gpuinterop.drawing.svg import Canvas

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def card(c: Canvas, x: float, y: float, width: float, lines: list[str], *, dashed: bool = False) -> None:  # fmt: skip
    """Draw a box with lines of text; the first is bold."""
    c.box(x, y, width, 14 + 18 * len(lines), dashed=dashed)
    for i, line in enumerate(lines):
        c.text(x + 10, y + 20 + 18 * i, line, "note" if i else "text", bold=not i)


def heading(title: str, description: str) -> Canvas:
    c = Canvas(title, description)
    c.text(14, 28, title, size=15, bold=True)
    return c


def memory(c: Canvas, x: float, y: float, count: int, width: float = 30, height: float = 26) -> None:  # fmt: skip
    for i in range(count):
        c.cell(x + i * width, y, width, height, str(i), i / (count - 1))


def strides() -> str:
    c = heading(
        "A view is a start, a shape and steps",
        "The memory of x, a float32 array of shape (4, 6), as 24 cells. The view y = x[::2, ::-1] starts at the last "
        "cell of the first row. A step along axis 1 goes 4 bytes back, a step along axis 0 goes 48 bytes forward, "
        "over a row that the view leaves out.",
    )
    for x, words in (
        (14, "y = x[::2, ::-1]"),
        (190, "shape (2, 6)"),
        (330, "strides (48, -4) bytes"),
    ):
        c.text(x, 56, words, "note")
    left, top, width, height = 84, 92, 50, 28
    for row in range(4):
        y = top + row * (height + 12)
        c.text(left - 10, y + 19, f"+{24 * row}", "note", size=12, anchor="end")
        for column in range(6):
            number = row // 2 * 6 + 5 - column
            words, part = (f"{row // 2},{5 - column}", number / 11) if row % 2 == 0 else ("", None)
            c.cell(left + column * width, y, width, height, words, part)
    start = left + 5.5 * width
    c.arrow(start - 6, top - 1, start - width, top - 1, by=(start - width / 2 - 3, top - 22))
    c.text(start - width / 2, top - 15, "-4", size=12, anchor="middle")
    c.arrow(start + 25, top + 14, start + 25, top + 94, by=(start + 65, top + 54))
    c.text(start + 52, top + 58, "+48", size=12)
    notes = [
        "y[0, 0] is here: byte 20",
        "axis 1: step of -4 bytes",
        "axis 0: step of +48 bytes",
        "grey: not in y",
    ]
    for i, line in enumerate(notes):
        c.text(start + 96, top + 20 + 34 * i, line, "note")
    c.text(14, 270, "x and y share these 96 bytes. Nothing was copied.")
    return str(c)


def ownership() -> str:
    c = heading(
        "The memory lives as long as one array needs it",
        "A tensor t of PyTorch owns memory. The gpuinterop array x, made from t, holds a reference to t. The view y "
        "holds a reference to t too, and the NumPy array n to x. After del t the memory stays, because the others "
        "still hold the tensor.",
    )
    card(c, 14, 50, 190, ["t", "torch.Tensor", "owns the memory"])
    card(c, 254, 50, 196, ["x = gi.from_any(t)", "CudaNdarray", "x.base is t"])
    card(c, 254, 144, 196, ["y = x[::2]", "CudaNdarray", "y.base is t"])
    card(c, 500, 50, 210, ["n = gi.to(x, 'numpy')", "numpy.ndarray", "holds x's memory"])
    c.arrow(250, 84, 207, 84)
    c.arrow(496, 84, 453, 84)
    c.arrow(250, 170, 176, 122)
    c.arrow(500, 168, 530, 168)
    c.text(540, 172, "holds a reference", "note")
    c.text(14, 244, "one memory, which all four read and write:")
    memory(c, 14, 256, 12, 58)
    c.text(14, 314, "del t frees nothing, because x, y and n still hold it.")
    c.text(14, 334, "PyTorch gets the memory back when the last of them is destroyed.")
    return str(c)


def lane(c: Canvas, y: float, name: str, width: float = 560) -> None:
    """Draw a line of time from left to right."""
    c.text(14, y + 5, name, bold=True)
    c.arrow(150, y, 150 + width, y, "edge")


def work(c: Canvas, x: float, y: float, width: float, words: str, part: float | None = None) -> None:  # fmt: skip
    """Draw a piece of work on a line of time."""
    c.cell(x, y - 15, width, 30, words, part)


def streams() -> str:
    c = heading(
        "The GPU waits for the other library, and Python does not",
        "Three lines of time. Python queues work of PyTorch on stream 7, then work of gpuinterop on stream 9, and goes "
        "on at once. On the GPU stream 9 waits for an event of stream 7, so that the sum reads the values that PyTorch "
        "wrote.",
    )
    lane(c, 76, "Python")
    work(c, 160, 76, 84, "t.mul_(2)")
    work(c, 250, 76, 122, "gi.from_any(t)")
    work(c, 378, 76, 70, "x.sum()")
    c.text(462, 66, "goes on at once", "note", size=12)
    lane(c, 146, "stream 7")
    work(c, 220, 146, 220, "PyTorch writes t", 0.1)
    c.text(14, 168, "PyTorch's", "note", size=12)
    lane(c, 216, "stream 9")
    work(c, 474, 216, 180, "gpuinterop reads x", 0.9)
    c.text(14, 238, "gpuinterop's", "note", size=12)
    c.arrow(440, 164, 471, 214, "good", by=(440, 214))
    c.text(270, 205, "event: wait for t", "good", size=12)
    c.arrow(202, 93, 226, 128, dashes="2 4")
    c.arrow(414, 93, 500, 198, dashes="2 4", by=(470, 112))
    c.text(14, 276, "No call waits on the host. gpuinterop adds the event, you add nothing.")
    return str(c)


def read_only() -> str:
    c = heading(
        "Read-only memory goes only to libraries that keep the flag",
        "A read-only array x. NumPy can mark an array read-only, so it shares the memory. PyTorch cannot, so the "
        "conversion raises an error, unless you allow a copy or promise not to write.",
    )
    c.text(14, 58, "x = gi.broadcast_to(row, (3, 4))", "note")
    memory(c, 14, 70, 4, 58)
    c.text(256, 88, "x.flags.writeable is False", "note")
    c.arrow(60, 102, 100, 136, "good")
    c.arrow(180, 102, 400, 136, "fault")
    card(
        c,
        14,
        140,
        300,
        ["gi.to(x, 'numpy')", "shares; the result is read-only", "n[0] = 1 raises ValueError"],
    )
    card(
        c,
        344,
        140,
        352,
        [
            "gi.to(x, 'torch')",
            "raises ReadOnlyError: a tensor has",
            "no flag, so it could write to x",
        ],
    )
    c.text(344, 234, "copyif=True", "good", bold=True)
    c.text(512, 234, "gives a copy", "note")
    c.text(344, 256, "allow_readonly=True", "good", bold=True)
    c.text(512, 256, "shares; do not write", "note")
    return str(c)


KERNELS = ("a * b", "+ c", "sum")


def captures() -> str:
    c = heading(
        "Record a sequence once, replay it with one call",
        "Two pairs of lines of time. Without a capture Python launches three kernels one by one and the GPU idles "
        "between them. A replay launches the same three kernels with one call, so they run back to back.",
    )
    for y, words, starts, kernels in (
        (
            96,
            "three calls: the GPU waits for Python between them",
            (160, 280, 400),
            (250, 370, 490),
        ),
        (232, "one replay: the kernels run back to back", (160,), (250, 326, 402)),
    ):
        c.text(150, y - 28, words, "note")
        lane(c, y, "Python")
        lane(c, y + 54, "GPU")
        for number, start in enumerate(starts):
            call = "replay()" if len(starts) == 1 else KERNELS[number]
            work(c, start, y, 84, call)
        for number, start in enumerate(kernels):
            work(c, start, y + 54, 70, KERNELS[number], number / 2)
        for start, kernel in zip(starts, kernels, strict=False):
            c.arrow(start + 60, y + 17, kernel + 6, y + 36, dashes="2 4")
    c.text(14, 340, "A capture records the calls, and the memory that they use.")
    c.text(14, 360, "A replay computes with the values that the inputs hold now.")
    return str(c)


def float32() -> str:
    c = heading(
        "One transfer carries twice as many numbers in float32",
        "One memory transfer of 32 bytes carries 4 numbers of float64 or 8 of float32. float32 keeps 24 bits of each "
        "number, about 7 decimal digits; float64 keeps 53 bits, about 16 digits.",
    )
    c.text(150, 58, "32 bytes, which a GPU reads at once", "note")
    for y, name, count in ((70, "float32", 8), (112, "float64", 4)):
        c.text(14, y + 21, name, bold=True)
        memory(c, 150, y, count, 400 / count, 32)
        c.text(564, y + 21, f"{count} numbers", "note")
    c.text(150, 178, "0.1 as each of them keeps it", "note")
    for y, name, digits, wrong in (
        (202, "float32", "0.1000000", "01490116"),
        (226, "float64", "0.1000000000000000", "0555"),
    ):
        c.text(14, y, name, bold=True)
        c.text(150, y, digits)
        c.text(150 + len(digits) * 13 * 0.602, y, wrong, "fault")
    c.text(440, 202, "7 digits", "note")
    c.text(440, 226, "16 digits", "note")
    c.text(14, 262, "gpuinterop never narrows a dtype for you. You cast: x.astype('float32').")
    return str(c)


def one_memory() -> str:
    c = heading(
        "One array, four libraries, one memory",
        "Four cards, one for each library: PyTorch, CuPy, JAX and Numba, each with the call that shares the gpuinterop "
        "array x. An arrow leads from each card to the same twelve cells of memory on one GPU. Nothing is copied.",
    )
    calls = [
        ("PyTorch", "gi.to(x, 'torch')", "torch.Tensor"),
        ("CuPy", "gi.to(x, 'cupy')", "cupy.ndarray"),
        ("JAX", "gi.to(x, 'jax')", "jax.Array"),
        ("Numba", "gi.to(x, 'numba')", "DeviceNDArray"),
    ]
    for i, lines in enumerate(calls):
        x = 14 + 182 * i
        card(c, x, 50, 168, list(lines))
        c.arrow(x + 84, 122, 172 + 124 * i, 166, "good")
    memory(c, 110, 170, 12, 44, 32)
    c.text(374, 230, "x: 48 bytes on cuda:0, zero copies", anchor="middle")
    c.text(
        374,
        252,
        "A library that cannot share x raises an error with the reason and the fix.",
        "note",
        anchor="middle",
    )
    return str(c)


def refused() -> str:
    return zeros((3, 4), device="cpu").T.draw(to="buffer").svg


PICTURES: dict[str, Callable[[], str]] = {
    "one-memory": one_memory,
    "refused": refused,
    "strides": strides,
    "ownership": ownership,
    "streams": streams,
    "read-only": read_only,
    "captures": captures,
    "float32": float32,
}
