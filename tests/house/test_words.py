"""Some words have one meaning each in the code, so that a reader of a name knows what it is.

* plan: how a conversion will go (exchange, converters, processes, the command that shows it), or prepared launches
  (reduce, product, and fusion, which uses theirs), or cuFFT's, which has this name (fft).
* row: an entry of a table, or a line of a matrix; never the id of a dtype.
* kind: a sort of thing. The dtype of an operand is its type code or its dtype id; b, i, u, f and c are letters.
* plain: an array as the core's own class has it, whatever its subclass overrides.
* where: the name of the call for an error. A mask is called mask, except in signatures that are NumPy's.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
# Folders that may use a word in names, or may not (with "-"); names that may be used everywhere.
FOLDERS = {
    "plan": "exchange converters processes cli testing reduce index product fusion sorting linalg fft",
    "kind": "-elementwise -fusion -reduce",
    "plain": "testing",
}
NAMES = {
    "plan": {"PlanCache", "Planned", "register_planned", "register_plans"},  # of reduce/
    "kind": {"Kind"},  # of errors, in C++
    "plain": {"plain"},
}


# Comments, raw strings, strings, includes: no names of C++.
NO_NAMES = r'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\#include[^\n]*'


def code_of(path: Path) -> str:
    return re.sub(NO_NAMES, " ", path.read_text(encoding="utf-8"))


@cache
def names_in(path: Path) -> frozenset[str]:
    """The identifiers of a source, without attributes called kind in Python."""
    if path.suffix != ".py":
        return frozenset(re.findall(r"[A-Za-z_]\w*", code_of(path)))
    text = io.StringIO(path.read_text(encoding="utf-8"))
    tokens = [t for t in tokenize.generate_tokens(text.readline) if t.string]
    return frozenset(
        token.string
        for before, token in pairwise(tokens)
        if token.type == tokenize.NAME and (before.string, token.string) != (".", "kind")
    )


def words_of(name: str) -> set[str]:
    found = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}
    return found | {word.removesuffix("s").removesuffix("ned") for word in found}


def may_use(folders: str, folder: str) -> bool:
    forbidden = {name[1:] for name in folders.split() if name[0] == "-"}
    return folder not in forbidden if forbidden else folder in folders.split()


@pytest.mark.parametrize("word", FOLDERS)
def test_a_word_is_used_where_it_has_its_meaning(word):
    sources = [*ROOT.glob("gpuinterop/**/*.py"), *ROOT.glob("native/**/*.[ch]pp")]
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources
        if not may_use(FOLDERS[word], path.relative_to(ROOT).parts[1])
        for name in names_in(path) - NAMES[word]
        if word in words_of(name)
    }
    assert not found, "\n".join(sorted(found))


def parameters(name: str) -> Iterator[tuple[str, str, str]]:
    """The place, the function and the annotation of each parameter of this name."""
    for path in ROOT.glob("gpuinterop/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                    if a.arg == name and a.annotation:
                        place = f"{path.relative_to(ROOT)}:{node.lineno}"
                        yield place, node.name, ast.unparse(a.annotation)


def declared(name: str) -> set[str]:
    """The types of the variables and parameters of this name in C++."""
    sources = map(code_of, ROOT.glob("native/**/*.[ch]pp"))
    types = rf"([\w:]*\w)(?:\s*[&*]+\s*|\s+){name}\b(?=\s*[,:;)=({{\[])"
    return {found for text in sources for found in re.findall(types, text)} - {"return"}


def test_a_row_is_no_number_of_a_dtype():
    found = [p for name in ("row", "rows") for p in parameters(name) if re.search(r"\bint\b", p[2])]
    assert not [p for p in found if "/theano/" not in p[0] and "/converters/" not in p[0]]
    assert not declared("rows?") & {"DTypeId", "nb::handle", "nb::list", "nb::object", "nb::tuple"}


def test_where_is_the_name_of_a_call():
    masks = [p for p in parameters("where") if not p[2].startswith("str")]
    assert not [p for p in masks if not (hasattr(np, p[1]) or hasattr(np.ndarray, p[1]))]
    assert declared("where") <= {"char", "std::string"}  # const char*


def test_the_core_hands_many_values_to_python_by_name():
    text = "".join(p.read_text("utf-8") for p in ROOT.glob("native/**/*.cpp"))
    formats = re.findall(r'call_hook\(\s*Hook::\w+,\s*"([^"]*)"', text)
    assert formats
    assert max(len(re.sub(r"[(){}]", "", f)) for f in formats) <= 6
