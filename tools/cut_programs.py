#!/usr/bin/env python3
"""Extract the programs of the Theano tutorials into tests/documents, word for word: ``cut_programs.py FOLDER``.

FOLDER holds the four documents as text. Two of them lost the line breaks or the indentation of their programs when
they were saved; `INDENTS` and `BREAKS` restore only white space. The fragments of the blog get the imports that they
need. SHA256SUMS, beside the programs, holds their checksums. ``--check`` compares instead of writing.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import sys
import textwrap
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "tests" / "documents"
TUTORIAL, CHINESE, CONVERSIONS, BLOG = "001", "000", "002", "003"

GPUARRAY = "from theano import function, config, shared, tensor, sandbox"
SHAPE = "print tm.get_value().shape  # note: we can get the value back at any time"

# Program -> document, its first line, its last line; which occurrence of the first line.
LINES = {
    "solution": (CHINESE, "#!/usr/bin/env python", "print(predict())", 0),
    "gpuarray_check1": (CHINESE, GPUARRAY, "print 'Used the gpu'", 0),
    "gpuarray_check2": (CHINESE, GPUARRAY, "print 'Used the gpu'", 1),
    "blog_numpy": (BLOG, "# define data", 'print "numpy", time.time()-start, "sec"', 0),
    "blog_theano": (BLOG, "import theano", 'print "theano", time.time()-start, "sec"', 0),
    "blog_shared": (BLOG, "# define data", SHAPE, 2),
    "blog_shared2": (BLOG, "#define data", 'print "theano", time.time()-start, "sec"', 0),
}  # fmt: skip
IMPORTS = {
    "blog_numpy": "import time\nimport numpy as np\n",
    "blog_theano": "import time\nimport numpy as np\n",
    "blog_shared": "import time\nimport numpy as np\nimport theano\nimport theano.tensor as T\n",
    "blog_shared2": "import time\nimport numpy as np\nimport theano\nimport theano.tensor as T\n",
}
# The page on conversions printed its test in one line: how its lines begin, with their indentation.
TEST = (
    "import sys",
    "import numpy",
    "import theano",
    "import theano.sandbox",
    "import theano.misc",
    "import pycuda",
    "import pycuda.driver",
    "import pycuda.gpuarray",
    "def test_",
    '    """Simple',
    "    from pycuda",
    "    mod =",
    "    multiply_them = mod",
    "    a = numpy",
    "    b = numpy",
    "    # Test",
    "    ga =",
    "    gb =",
    "    dest =",
    "    multiply_them(dest",
    "    assert",
)
# Lines of a program, by their first words, that the document prints without their indentation.
INDENTS = {
    "solution": ("pred, err = train()", "print('Used the", "print('ERROR", "print(train."),
    "gpuarray_check1": ("r = f()", "print 'Used the"),
    "gpuarray_check2": ("r = f()", "print 'Used the"),
}


def tutorial(text: str) -> dict[str, str]:
    """Return the programs of the tutorial, which kept its indentation, in order."""
    found = re.findall(
        r"^\.\. code-block:: python\n[ ]*\n((?:[ ]{2,}.*\n|[ ]*\n)+)", text, flags=re.M
    )
    names = (
        "check1",
        "check2",
        "check3",
        "logistic_regression",
        "pycuda_multiply",
        "pycuda_double_op",
    )
    programs = {
        name: textwrap.dedent(block).strip() + "\n"
        for name, block in zip(names, found, strict=True)
    }
    test = re.findall(r"^>>> (.*)$", text, flags=re.M)
    programs["pycuda_double_op"] += "\n" + "\n".join(test) + "\n"
    return programs


def broken(text: str, beginnings: tuple[str, ...]) -> str:
    """Return a program that was printed in one line, with line breaks and indentation before the beginnings."""
    (line,) = (line for line in text.splitlines() if line.startswith("import sys import numpy"))
    lines, rest = [], line
    for before, begin in itertools.pairwise(beginnings):
        start = len(before.strip())
        at = rest.index(begin.strip(), start)
        lines.append(before[: len(before) - len(before.lstrip())] + rest[:at].rstrip())
        rest = rest[at:]
    last = beginnings[-1]
    return "\n".join([*lines, last[: len(last) - len(last.lstrip())] + rest.rstrip()]) + "\n"


def by_lines(text: str, first: str, last: str, occurrence: int) -> list[str]:
    lines = [line.rstrip() for line in text.splitlines()]
    begin = [i for i, line in enumerate(lines) if line == first][occurrence]
    end = next(i for i in range(begin, len(lines)) if lines[i] == last)
    return lines[begin : end + 1]


def programs(folder: Path) -> dict[str, str]:
    """Return every program of the documents, by its name."""
    texts = {path.name[:3]: path.read_text(encoding="utf-8") for path in folder.glob("00*.txt")}
    found = tutorial(texts[TUTORIAL])
    for name, (document, first, last, occurrence) in LINES.items():
        lines = by_lines(texts[document], first, last, occurrence)
        deeper = INDENTS.get(name, ())
        lines = ["    " + line if deeper and line.startswith(deeper) else line for line in lines]
        found[name] = IMPORTS.get(name, "") + "\n".join(lines) + "\n"
    found["pycuda_theano"] = broken(texts[CONVERSIONS], TEST)
    return found


def files(folder: Path) -> dict[str, bytes]:
    """Return the contents of every file that is cut, by its name."""
    found = {f"{name}.py.txt": text.encode() for name, text in programs(folder).items()}
    sums = (f"{hashlib.sha256(found[name]).hexdigest()}  {name}\n" for name in sorted(found))
    return {**found, "SHA256SUMS": "".join(sums).encode()}


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    (folder,) = (Path(a) for a in arguments if a != "--check")
    TARGET.mkdir(parents=True, exist_ok=True)
    stale = []
    for name, content in files(folder).items():
        path = TARGET / name
        if check and (not path.is_file() or path.read_bytes() != content):
            stale.append(name)
        elif not check:
            path.write_bytes(content)
    if stale:
        print("not as printed:", ", ".join(stale))
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
