"""The README for a package index: each relative link of the README becomes the address of a file that exists."""

import re
import sys
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).parents[2]
SOURCE = "https://github.com/gpuinterop/gpuinterop"
RAW = "https://raw.githubusercontent.com/gpuinterop/gpuinterop"


def test_links_lead_to_files_of_the_release(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from index_readme import dynamic_metadata

    project = {"urls": {"Source": SOURCE}, "version": "1.2"}
    text = dynamic_metadata({}, project)["readme"]["text"]
    sys.modules.pop("index_readme")
    links = re.findall(r'\]\(([^)#]+)|src="([^"]+)"', text)
    links = [one or other for one, other in links]
    assert all(link.startswith("https://") for link in links)
    ours = [link for link in links if link.startswith((SOURCE, RAW))]
    assert len(ours) > 10
    for link in ours:
        path = unquote(link).replace(f"{SOURCE}/blob/v1.2/", "").replace(f"{RAW}/v1.2/", "")
        assert (ROOT / path).is_file(), link


def test_only_relative_links_change(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from index_readme import absolute

    sys.modules.pop("index_readme")
    text = '[a](b.md#c) ![d](e.png) [f](https://g) [h](#i) <img alt="j" src="k.svg">'
    assert absolute(text, SOURCE, "v1") == (
        f"[a]({SOURCE}/blob/v1/b.md#c) ![d]({RAW}/v1/e.png) [f](https://g) [h](#i) "
        f'<img alt="j" src="{RAW}/v1/k.svg">'
    )
