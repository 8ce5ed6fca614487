"""Write the generated pages of docs/: errors by name. ``make_docs.py --check`` compares instead."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from gpuinterop import errors

ROOT = Path(__file__).parents[1]

ERRORS_HEAD = """\
# Errors by name

<!-- Written by tools/make_docs.py from gpuinterop/errors.py: change it there. -->

Each error is a `GpuInteropError`, and also the built-in exceptions beside its name, so programs
that catch those go on working. Its message has up to three lines: where it was raised and what was
expected; what came; what to do. The same parts are the attributes `where`, `expected`, `got` and
`fix`; `reason` is a word for programs, and `axis` the axis at fault, or `None`. All of them can be
imported from `gpuinterop`.

```python
import gpuinterop as gi

try:
    gi.zeros((2, 3)).reshape(4, 4)
except ValueError as error:
    assert isinstance(error, gi.ShapeError)
    assert error.reason == "shape"
    print(error)
```

| error | is also | `reason` | means |
| --- | --- | --- | --- |
"""


def builtins_of(cls: type) -> list[str]:
    """The built-in exceptions that catch `cls`, the nearest of each line."""
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


PAGES = {ROOT / "docs" / "errors.md": errors_page}


def main(arguments: list[str]) -> int:
    stale = []
    for path, make in PAGES.items():
        text = make()
        if arguments == ["--check"]:
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                stale.append(path.relative_to(ROOT))
        else:
            path.write_text(text, encoding="utf-8")
    for path in stale:
        print(f"{path} is stale: run `make docs`")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
