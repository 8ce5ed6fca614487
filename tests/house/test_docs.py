"""The documentation is true: programs run, links lead somewhere, generated pages are fresh."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pages import PAGES, ROOT, anchors, blocks, links, title

import gpuinterop


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
            yield pytest.param(page, need, id=" ".join([title(page), *need]))


@pytest.mark.parametrize(("page", "needs"), list(programs()))
def test_code_runs_as_printed(page, needs, tmp_path):
    for library in needs:
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    # Blocks that need nothing more run in every program of the page, so later ones may build on them.
    lines = []
    for block in blocks(page):
        if block.language == "python" and set(block.needs) <= set(needs):
            # Padding keeps the line numbers of the page in a traceback.
            lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    program = tmp_path / f"{page.stem}.py"
    program.write_text("\n".join(lines) + "\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path(gpuinterop.__file__).parents[1])}
    command = [sys.executable, "-W", "error", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, f"{title(page)}\n{done.stderr}"


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


@pytest.mark.parametrize("page", list(tool("make_docs").PAGES), ids=title)
def test_generated_pages_are_fresh(page):
    assert page.read_text(encoding="utf-8") == tool("make_docs").PAGES[page](), "run `make docs`"
