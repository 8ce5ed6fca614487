"""The documentation is true: programs run, links lead somewhere, generated pages are fresh."""

import ast
import codeop
import importlib.util
import inspect
import json
import operator
import pkgutil
import re
import sys
from xml.etree import ElementTree

import pytest
from doubles import driver
from helpers import opencl
from helpers.mpi import require_mpi
from pages import PAGES, ROOT, anchors, blocks, links, prose, title

import gpuinterop

sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "benchmarks")]


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def programs():
    """One program for each page and each set of libraries that its blocks need."""
    for page in PAGES:
        needs = {block.needs for block in blocks(page) if block.language == "python"}
        for need in sorted(needs):
            marks = [getattr(pytest.mark, name) for name in need if name in ("gpu", "numba")]
            yield pytest.param(page, need, id=" ".join([title(page), *need]), marks=marks)


@pytest.mark.parametrize(("page", "needs"), list(programs()))
def test_code_runs_as_printed(page, needs, tmp_path):
    for library in set(needs) - {"gpu"}:
        spec = importlib.util.find_spec(library)
        if (
            spec is None or spec.origin is None
        ):  # None: a folder of the tests that has the library's name
            pytest.skip(f"{library} is not installed")
    if "pyopencl" in needs:
        opencl.require_compiler()
    if "mpi4py" in needs:
        require_mpi()
    # Blocks that need nothing more run in every program of the page, so later ones may build on them.
    lines = []
    for block in blocks(page):
        if block.language == "python" and set(block.needs) <= set(needs):
            # Padding keeps the line numbers of the page in a traceback.
            lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    program = tmp_path / f"{page.stem}_page.py"  # random.py would hide the module random
    program.write_text("\n".join(lines) + "\n", encoding="utf-8")
    # Warnings of other libraries at import are not faults of gpuinterop.
    strict = ["-W", "error"] if set(needs) <= {"gpu"} else []
    done = driver.python(*strict, program)
    assert done.returncode == 0, f"{title(page)}\n{done.stderr}"


def refused_at_the_prompt(text: str) -> str | None:
    """The first line that ``>>>`` refuses when the lines are pasted into it, one by one."""
    compile_command, typed = codeop.CommandCompiler(), []
    for line in [*text.splitlines(), ""]:
        typed.append(line)
        try:
            complete = compile_command("\n".join(typed)) is not None
        except SyntaxError:
            return line
        if complete:
            typed = []
    return typed[0] if typed else None


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_code_can_be_pasted_into_the_prompt(page):
    assert refused_at_the_prompt("with x:\n    y\nz") == "z"
    assert refused_at_the_prompt("def f():\n    x\n\n    y") == "    y"
    code = [block for block in blocks(page) if block.language in ("python", "py")]
    refused = [(block.line, refused_at_the_prompt(block.text)) for block in code]
    assert not [found for found in refused if found[1] is not None], (
        "a body ends with an empty line, and has none inside, except before else, except and the like"
    )


SPELT = {"gpu": "GPU", "torch": "PyTorch", "sklearn": "scikit-learn"}


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_text_names_the_requirements_of_each_code_block(page):
    silent = [
        (block.line, need)
        for block in blocks(page)
        for need in block.needs
        if SPELT.get(need, need).lower() not in block.text_before.lower()
    ]
    assert not silent


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_links_resolve(page):
    broken = []
    for link in links(page):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        missing = not target.exists()
        if missing or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "adr"], ids=title)
def test_text_names_what_it_means(page):
    text = re.sub(r"^\|.*", "", prose(page), flags=re.M)  # cells of tables are short
    assert not re.findall(r"\b(?:that one|those (?:of|that)|such a|the latter)\b", text, flags=re.I)


def test_sentences_are_short(capsys):
    assert tool("readability").main([]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent.name == "how-to" and page.stem != "index"],
    ids=title,
)
def test_a_how_to_page_fits_a_screen(page):
    assert len(page.read_text(encoding="utf-8").splitlines()) < 64, "one task a page: split it"


def test_every_page_is_reachable_from_the_index():
    start = ROOT / "docs" / "index.md"
    seen, todo = set(), [start]
    while todo:
        page = todo.pop()
        if page in seen:
            continue
        seen.add(page)
        for link in links(page):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.is_file():
                todo.append(target)
    assert {title(page) for page in PAGES} <= {title(page) for page in seen}


def test_table_of_creation_functions_matches_their_signatures():
    text = (ROOT / "docs" / "reference" / "creating.md").read_text(encoding="utf-8")
    table = text.partition("| call | memory |")[2].partition("\n\n")[0]
    calls = re.findall(r"`([\w.]+)\((.*?)\)`", table)
    assert ("asarray", "obj, dtype=None, *, device=None, copy=None") in calls
    for name, written in calls:
        takes = inspect.signature(operator.attrgetter(name)(gpuinterop)).parameters
        parsed = ast.parse(f"def call({written}): ...").body[0].args
        by_place = [one for one in takes.values() if one.kind is not one.KEYWORD_ONLY]
        required = len(parsed.args) - len(parsed.defaults)
        assert len(by_place) >= len(parsed.args), (name, written)
        for place, one in enumerate(parsed.args[required:], required):
            by_name = parsed.defaults[place - required].value is ...
            assert by_name or by_place[place].name == one.arg, (name, written)
        assert {one.arg for one in parsed.kwonlyargs} <= set(takes), (name, written)


OTHER_PROJECTS = ("numpy", "cupy", "torch", "pytensor")
# Names on the pages for which the other project has no page, and a file of ours.
UNDOCUMENTED = {
    "cupy.inf", "cupy.newaxis", "pytensor.compile.debug.debugmode", "pytensor.graph.rewriting",
    "pytensor.sparse", "pytensor.tensor.random", "torch.float32", "torch.py",
}  # fmt: skip
# Where each project keeps the page of a name.
PLACES = {
    "numpy": r"reference/(generated/{name}|random/bit_generators/{last}|constants|arrays\.scalars)\.html",
    "cupy": r"reference/(generated/{name}|{last})\.html",
    "torch": r"(generated/{name}|generated/torch\.nn\.parameter\.Parameter|{last}|tensors)\.html",
    "pytensor": r"library/compile/\w+\.html",
}


@pytest.mark.parametrize("project", OTHER_PROJECTS)
def test_inventories_have_the_names_that_pages_mention(project):
    """Add a line to docs/inventories for a new name, and take out a name that no page mentions any more."""
    text = "\n".join(prose(page) for page in PAGES)
    short = "np|numpy" if project == "numpy" else project
    text = re.sub(r"^#.*", "", text, flags=re.M)
    mentioned = {project + n for n in re.findall(rf"(?<!`)`(?:{short})(\.[\w.]*\w)", text)}
    mentioned -= UNDOCUMENTED
    docstrings = "\n".join(p.read_text("utf-8") for p in (ROOT / "gpuinterop").rglob("*.py"))
    lines = (ROOT / "docs" / "inventories" / f"{project}.inv").read_text("utf-8").splitlines()[3:]
    known = {}
    for line in lines:
        name, _, known[name] = line.split()
    assert mentioned <= set(known)
    assert {n for n in known if n not in mentioned and f"`{n}`" not in docstrings} == set()
    for name, place in known.items():
        form = PLACES[project].format(name=re.escape(name), last=name.rpartition(".")[2].lower())
        assert re.fullmatch(form, place), (name, place)
        if project == "numpy":
            assert pkgutil.resolve_name(name) is not None


def reference(page):
    """The names that Sphinx documents on a page of the reference, and the second names of some."""
    text = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")
    listed = re.findall(r"^\.\. auto(?:function|class|data):: (\w+)$", text, flags=re.M)
    return set(listed), dict(re.findall(r"`(\w+)`\s+is\s+`(\w+)`", text))


def test_the_reference_lists_every_public_name_once():
    listed = {"__version__"}
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        names, second = reference(page.name)
        assert not listed & (names | set(second)), page.name
        listed |= names | set(second)
        assert all(getattr(gpuinterop, a) is getattr(gpuinterop, b) for a, b in second.items())
    assert {n for n in gpuinterop.__all__ if not n.endswith("Error")} == listed


def test_every_public_name_has_an_example():
    """In a program of a page or in its docstring; elementwise functions have one program for all."""
    code = "\n".join(
        b.text for page in PAGES for b in blocks(page) if b.language in ("python", "py")
    )
    names, second = reference("elementwise.md")
    assert not [
        name
        for name in gpuinterop.__all__
        if not name.endswith("Error")
        and name not in names | set(second)
        and not re.search(rf"\bgi\.{name}\b", code)
        and ">>>" not in (inspect.getdoc(getattr(gpuinterop, name)) or "")
    ]


@pytest.mark.parametrize("name", tool("performance_page").PICTURES)
def test_pictures_are_small_and_claim_what_the_records_show(name):
    found, made = tool("performance_page").records(), tool("performance_pictures")
    text = made.PICTURES[name](found)
    assert len(text) < 30_000
    title = ElementTree.fromstring(text).find("{*}title").text
    assert len(title) < 140
    assert f"![{title}](../images/{name}.svg)" in made_page("performance.md")
    # With gpuinterop's figures as those of the slowest library the message is wrong, and the picture is refused.
    record = json.loads(json.dumps(found["converters" if name == "converters" else name]))
    worst = min if "/s" in record["unit"] else max
    for row in record["rows"].values():
        slow = worst(row.values()) * (0.1 if worst is min else 10)
        row.update({who: slow for who in row if who.startswith("gpuinterop")})
    if name not in ("bandwidth", "reductions"):  # which compare gpuinterop with itself
        with pytest.raises(SystemExit, match="write another title"):
            made.PICTURES[name]({**found, name: record})


def test_every_picture_is_on_a_page_with_words_for_it():
    shown = {}
    for page in PAGES:
        for words, path in re.findall(r"^!\[(.*)\]\((\S+)\)$", page.read_text("utf-8"), flags=re.M):
            shown[(page.parent / path).resolve()] = words
    assert set((ROOT / "docs" / "images").rglob("*.svg")) == set(shown)
    assert all(len(words) > 20 for words in shown.values())


def made_page(name: str) -> str:
    return (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")


def test_every_row_with_a_faster_library_is_listed():
    """Compares the page with the records: the fastest other library of each row, without omissions."""
    made = tool("performance_page")
    found = made.records()
    text = "\n".join(made.losses(found))
    listed = {(name, row): (who, best) for name, row, who, _, best in made.ahead(found)}
    listed |= {(mark.record, mark.row): None for mark in made.missed(found)}
    behind = {(name, one.row) for name, one in made.every_ratio(found) if one.missed}
    assert all(f"`{row}`, " in text for _, row in behind)
    listed |= dict.fromkeys(behind)
    for name in found:
        record = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text(encoding="utf-8"))
        more = "/s" in record["unit"]
        for row, values in record["rows"].items():
            own = [v for who, v in values.items() if who.startswith("gpuinterop")]
            # Rows such as numpy.from_dlpack(gpuinterop) import a gpuinterop array, so they measure both libraries.
            other_libraries = {who: v for who, v in values.items()
                      if not who.startswith(("gpuinterop", "floor"))
                      and "(gpuinterop)" not in who and "(x" not in who}  # fmt: skip
            if not own or not other_libraries:
                continue
            best = (max if more else min)(other_libraries.values())
            if (best / own[0] if more else own[0] / best) > 1.05:
                assert (name, row) in listed, f"{row!r} of {name} is not listed"
                assert listed[name, row] is None or listed[name, row][1] == best
    assert "No explanation yet" not in text
    marked = {(mark.record, mark.row) for mark in made.missed(found)}
    assert len(listed) == len(made.ahead(found)) + len(marked | behind)


def test_all_marks_are_counted():
    made = tool("performance_page")
    found = made.records()
    page = made.page()
    tables = re.findall(r"(\d+) of (\d+) targets (?:is|are) missed\.", page)
    assert len(tables) == 1 + len(made.RATIOS)
    lost = page.count("**missed**") + sum(int(missed) for missed, _ in tables)
    total = len(made.MARKS) + len(made.promises(found)) + sum(int(every) for _, every in tables)
    assert f"{total - lost} of {total} targets are met" in " ".join(page.split())
    launch = next(one for one in made.promises(found) if one.row == made.LAUNCHED)
    rows = found["launch"]["rows"]
    floor = rows[made.LAUNCHED].get("floor") or rows["empty kernel"]["floor"]
    above = rows[made.LAUNCHED]["gpuinterop"] - floor
    assert (launch.value, launch.mark, launch.unit) == (above, 0.5, "us")


@pytest.mark.parametrize("page", list(tool("make_docs").PAGES), ids=title)
def test_generated_pages_are_fresh(page):
    assert page.read_text(encoding="utf-8") == tool("make_docs").PAGES[page](), (
        "run `make docs` (python tools/make_docs.py)"
    )
