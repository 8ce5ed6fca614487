"""The README for a package index: links relative to a clone become addresses of the released version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

README = Path(__file__).parents[1] / "README.md"


def absolute(text: str, source: str, tag: str) -> str:
    """Return Markdown whose relative links lead to the repository `source` at the tag."""
    files = source.replace("https://github.com/", "https://raw.githubusercontent.com/")
    text = re.sub(r"(!\[[^\]]*\]\()(?![a-z]+:)", rf"\1{files}/{tag}/", text)
    text = re.sub(r"((?<!!)\[[^\]]*\]\()(?![a-z]+:|#)", rf"\1{source}/blob/{tag}/", text)
    return re.sub(r'(<img[^>]* src=")(?![a-z]+:)', rf"\1{files}/{tag}/", text)


def dynamic_metadata(_settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    """Give scikit-build-core the field `readme`."""
    text = README.read_text(encoding="utf-8")
    text = absolute(text, project["urls"]["Source"], f"v{project['version']}")
    return {"readme": {"text": text, "content-type": "text/markdown"}}
