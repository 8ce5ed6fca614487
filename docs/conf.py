"""Sphinx builds the site from these pages: `make docs`. The pages are also made to be read as files, in a repository.

A build needs no network: docs/inventories has the names of other projects to which the docstrings link.
"""

import inspect
import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

import gpuinterop

DOCS = Path(__file__).parent

project = "gpuinterop"
version = release = gpuinterop.__version__
author = copyright = "The gpuinterop authors"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
# Links to headings, with the anchors of a repository's host.
myst_heading_anchors = 4
# The notebooks keep their outputs; tests/examples/test_notebooks.py executes them.
nb_execution_mode = "off"
nb_merge_streams = True
# One pair of backticks in a docstring is code, and a link if it is a known name.
default_role = "py:obj"
# Dashes only: "cpu" and "C" are strings of Python, whose quotes stay straight.
smartquotes_action = "D"
autodoc_typehints = "none"
autodoc_member_order = "groupwise"
napoleon_google_docstring = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

DOCUMENTED = {
    "numpy": "https://numpy.org/doc/stable/",
    "cupy": "https://docs.cupy.dev/en/stable/",
    "torch": "https://docs.pytorch.org/docs/stable/",
    "pytensor": "https://pytensor.readthedocs.io/en/latest/",
}
intersphinx_mapping = {
    name: (address, str(DOCS / "inventories" / f"{name}.inv"))
    for name, address in DOCUMENTED.items()
}

html_theme = "furo"
pygments_dark_style = "github-dark"
html_favicon = "static/icon.svg"
html_title = f"gpuinterop {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(DOCS / "scorer.js")
templates_path = ["templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
# The site of another version lies beside this one, in a folder with the version's name.
html_context = {"versions": json.loads((DOCS / "versions.json").read_text(encoding="utf-8"))}

# Files outside of docs/ that are pages of the site too, and the pages whose place they take.
OUTSIDE = {
    "README.md": "project/readme.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
# The sentences that all elementwise functions share stand once, at the head of their page.
SHARED_SENTENCES = "Works on any strides and broadcasts"


def read_outside(app: Any, docname: str, source: list[str]) -> None:
    """Read the files outside of docs/, and turn links to them into links to their pages."""
    for outside, inside in OUTSIDE.items():
        if inside == f"{docname}.md":
            app.env.note_dependency(str(DOCS.parent / outside))
            text = (DOCS.parent / outside).read_text(encoding="utf-8")
            source[0] = re.sub(r"\]\((?![a-z]+:|#)", "](../../", text)
    up = "../" * docname.count("/")
    for outside, inside in OUTSIDE.items():
        source[0] = source[0].replace(f"]({up}../{outside}", f"]({up}{inside}")


def clean_signature(
    _app: Any,
    _what: str,
    _name: str,
    _object: Any,
    _options: Any,
    signature: str | None,
    _returns: Any,
) -> tuple[str, None] | None:
    """Leave out `self`, types, and defaults that Python cannot write."""
    if signature is None:
        return None
    if "<factory>" in signature:
        return "()", None
    signature = re.sub(r"^\(self(, )?", "(", signature)
    signature = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", signature)
    signature = re.sub(r"=<[^>]*>", "", signature)
    return re.sub(r": [\w.]+(?: \| [\w.]+)*(?: (=) )?", r"\1", signature), None


def clean_docstring(
    _app: Any, _what: str, _name: str, documented: Any, _options: Any, lines: list[str]
) -> None:
    """Leave out what all elementwise functions share, link no parameters, and write |x| as an absolute value."""
    try:
        parameters = "|".join(inspect.signature(documented).parameters)
    except (TypeError, ValueError):
        parameters = ""
    cleaned: list[str] = []
    for line in lines:
        if line.startswith(SHARED_SENTENCES):
            break
        if "`" not in line and ">>>" not in line:
            line = line.replace("|", r"\|")
        if parameters:
            line = re.sub(rf"(?<!`)`({parameters})`(?!`)", r"``\1``", line)
        # What follows a parameter describes it. Napoleon takes it for a type if it stands in the same line.
        described = re.match(r"(\w[\w, ]*) : (.*)", line)
        cleaned += [described[1], f"    {described[2]}"] if described else [line]
    lines[:] = cleaned


def link_names(_app: Any, doctree: nodes.document) -> None:
    """Link code such as `gi.zeros((2, 3))` and `torch.sort` to the documentation of the name, where it is known."""
    for code in list(doctree.findall(nodes.literal)):
        found = re.match(rf"(gi|np|{'|'.join(DOCUMENTED)})(\.[\w.]*\w)", code.astext())
        if found and isinstance(code.parent, nodes.paragraph | nodes.entry):
            library = {"gi": "gpuinterop", "np": "numpy"}.get(found[1], found[1])
            link = addnodes.pending_xref(
                "", refdomain="py", reftype="obj", reftarget=library + found[2], refexplicit=True
            )
            code.replace_self(link)
            link += code


def first_sentence(text: str) -> str:
    """Return the first sentence of a page, without its markup."""
    paragraphs = re.sub(r"^(```|<!--).*?(^```|-->)$", "", text, flags=re.M | re.S).split("\n\n")
    prose = next((p for p in paragraphs if re.match(r"[\w*`\[](?!!)", p.strip())), "")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[*]", r"\1", " ".join(prose.split()))
    return re.split(r"(?<=\.) ", plain)[0].replace("After this page you", "You")


def write_llms(app: Any, error: Exception | None) -> None:
    """Write llms.txt: a line for each page, with the address of its Markdown source."""
    if error or app.builder.name != "html":
        return
    lines = ["# gpuinterop", "", f"> {first_sentence((DOCS.parent / 'README.md').read_text())}"]
    for folder in ("tutorial", "how-to", "understand", "reference"):
        lines += ["", f"## {folder.capitalize()}", ""]
        for docname in sorted(name for name in app.env.found_docs if name.startswith(folder)):
            page = Path(app.env.doc2path(docname))
            about = first_sentence(page.read_text()) if page.suffix == ".md" else "A notebook."
            address = f"_sources/{docname}{page.suffix}.txt"
            lines.append(f"- [{app.env.titles[docname].astext()}]({address}): {about}")
    Path(app.outdir, "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def setup(app: Any) -> None:
    """Register the functions above."""
    app.connect("source-read", read_outside)
    app.connect("doctree-read", link_names)
    app.connect("autodoc-process-signature", clean_signature)
    # Before napoleon, which reads the sections.
    app.connect("autodoc-process-docstring", clean_docstring, priority=100)
    app.connect("build-finished", write_llms)
