"""Write the generated pages of docs/ and their pictures. ``make_docs.py --check`` compares instead.

The sources: gpuinterop/errors/__init__.py for the errors; the benchmarks' records in benchmarks/results for
performance, its pictures, accuracy and the README's table of key figures; the suite's records there for
compatibility; those of other projects' tests for conformance; explaining_pictures.py for the pictures of the pages
that explain.
"""

from __future__ import annotations

import inspect
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import accuracy_page
import compatibility_page
import conformance_page
import explaining_pictures
import performance_page
import performance_readme
import product_precision_page
from page_parts import ROOT

from gpuinterop import errors
from gpuinterop.testing.layouts import LAYOUTS

README = ROOT / "README.md"
BEGIN, END = "<!-- figures: written by tools/make_docs.py -->\n\n", "\n<!-- end of figures -->"

ERRORS_HEAD = """\
# Errors by name

<!-- Written by tools/make_docs.py from gpuinterop/errors/__init__.py: change it there. -->

Every error is a subclass of `GpuInteropError` and of the built-in exceptions next to its name. So `except ValueError`
still catches it. A message has up to three lines: what the call expected, what it got, and a fix. The attributes
`where`, `expected`, `got` and `fix` hold the same parts. `reason` is an *error code* for programs. `axis` is the axis
at fault, or `None`. You can import all classes from `gpuinterop`.

```python
import gpuinterop as gi

try:
    gi.zeros((2, 3)).reshape(4, 4)
except ValueError as error:
    assert isinstance(error, gi.ShapeError)
    assert error.reason == "shape"
    print(error)
```

## Plans and errors

`gi.explain` returns a plan, which predicts the same error. A plan is made for reading, so **its `reason` is the
sentence and its `code` is the error code**.

| | error code | sentence |
| --- | --- | --- |
| an error | `error.reason` | `error.expected` |
| a plan of `gi.explain` | `plan.code` | `plan.reason` |

`fix`, `got`, `where` and `axis` have the same name in both. Some errors have a more specific code than their class,
such as "alignment".

```python
plan = gi.explain(gi.zeros((2, 3), device="cpu").T, "buffer")
try:
    gi.to(gi.zeros((2, 3), device="cpu").T, "buffer")
except gi.ContiguityError as error:
    assert (plan.code, plan.reason) == (error.reason, error.expected)
    assert plan.fix == error.fix
```

## The classes

| error | subclass of | `reason` | meaning |
| --- | --- | --- | --- |
"""


def builtins_of(cls: type) -> list[str]:
    """Return the built-in exceptions that catch `cls`, without base classes of others among them."""
    plain = (Exception, BaseException, object)
    kinds = [base for base in cls.__mro__ if base.__module__ == "builtins" and base not in plain]
    nearest = [k for k in kinds if not any(o is not k and issubclass(o, k) for o in kinds)]
    return [kind.__name__ for kind in nearest]


def errors_page() -> str:
    rows = []
    for name in sorted(errors.__all__):
        cls = getattr(errors, name)
        kinds = ", ".join(f"`{kind}`" for kind in builtins_of(cls)) or "`Exception`"
        meaning = " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())
        meaning = meaning.replace("``", "`")
        rows.append(f"| `{name}` | {kinds} | `{cls.reason}` | {meaning} |")
    return ERRORS_HEAD + "\n".join(rows) + "\n"


def readme() -> str:
    """Return the README with a new table of figures."""
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return before + BEGIN + performance_readme.readme_table() + END + after


PICTURES = (
    explaining_pictures.PICTURES
    | {
        name: partial(draw, performance_page.records())
        for name, draw in performance_page.PICTURES.items()
    }
    | {
        "tensor-speed": product_precision_page.speed_picture,
        "tensor-errors": product_precision_page.error_picture,
    }
    | {
        f"layouts/{layout.name}": partial(compatibility_page.layout_picture, layout)
        for layout in LAYOUTS.values()
    }
)
PAGES = {
    ROOT / "docs" / "reference" / "accuracy.md": accuracy_page.page,
    ROOT / "docs" / "reference" / "errors.md": errors_page,
    ROOT / "docs" / "reference" / "performance.md": performance_page.page,
    ROOT / "docs" / "reference" / "product-precision.md": product_precision_page.page,
    ROOT / "docs" / "reference" / "compatibility.md": compatibility_page.page,
    ROOT / "docs" / "reference" / "conformance.md": conformance_page.page,
    ROOT / "docs" / "reference" / "layouts.md": compatibility_page.layouts_page,
    README: readme,
    **{ROOT / "docs" / "images" / f"{name}.svg": draw for name, draw in PICTURES.items()},
}


def main(arguments: list[str]) -> int:
    check = arguments == ["--check"]
    stale = []
    for path, make in PAGES.items():
        text = make()
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path.relative_to(ROOT)))
    for name in stale:
        print(f"{name} is stale: run `make docs` (python tools/make_docs.py)")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
