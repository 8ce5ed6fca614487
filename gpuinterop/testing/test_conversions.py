"""``pytest --pyargs gpuinterop.testing``: the converters keep their promises."""

from __future__ import annotations

from gpuinterop.testing.conftest import Run


def test_conversion(conversion: tuple[str, str, str, str], run: Run) -> None:
    """All dtypes of a library, direction, device and layout."""
    cells = run.try_group(conversion)
    assert cells, "no case was tried"
    wrong = [str(cell) for cell in cells if cell.outcome == "wrong"]
    assert not wrong, "\n" + "\n".join(wrong)


def test_something_is_tried(run: Run) -> None:
    """A run without libraries fails, because it proves nothing."""
    why = "\n".join(f"{row.name}: {row.why}" for row in run.matrix.libraries)
    assert run.bridges, f"no library could be tried:\n{why}"
