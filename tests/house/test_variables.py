"""Every environment variable that is read stands in one table, and no other does."""

from __future__ import annotations

import re

from pages import ROOT

from gpuinterop import cuda_libraries


def read_in_the_sources() -> set[str]:
    """The names of variables in quotes; one is completed with the name of a library."""
    found: set[str] = set()
    for folder, ending in (("gpuinterop", "*.py"), ("native", "*.cpp"), ("native", "*.hpp")):
        for path in (ROOT / folder).rglob(ending):
            text = path.read_text(encoding="utf-8")
            for name, open_end in re.findall(r"[\"'](GPUINTEROP_[A-Z0-9_]+)(\{)?", text):
                found |= (
                    {name + library.upper() for library in cuda_libraries._TITLES}
                    if open_end
                    else {name}
                )
    return found


def test_the_table_names_every_variable():
    page = (ROOT / "docs" / "devices.md").read_text(encoding="utf-8")
    table = page.partition("## Environment variables")[2]
    named = re.findall(r"^\| `(\w+)` \|", table, flags=re.M)
    assert len(named) == len(set(named))
    assert set(named) == read_in_the_sources() >= {"GPUINTEROP_LIBCUDA", "GPUINTEROP_LIBNVRTC"}
