"""The programs of the old documents are as the documents print them.

The documents belong to others and are not in the repository. GPUINTEROP_DOCUMENTS names their folder.
"""

import hashlib
import os
from pathlib import Path

import pytest
from doubles import driver

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "documents"


def test_programs_have_their_checksums():
    """Also without the documents, a program cannot be adapted unnoticed."""
    lines = (PROGRAMS / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, name in map(str.split, lines)}
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in PROGRAMS.iterdir()
        if path.name != "SHA256SUMS"
    }
    assert found == sums, "cut them again: tools/cut_programs.py FOLDER"


def test_programs_are_cut_from_the_documents():
    named = os.environ.get("GPUINTEROP_DOCUMENTS")
    if not named:
        pytest.skip("the old documents are not here: GPUINTEROP_DOCUMENTS names their folder")
    done = driver.python("tools/cut_programs.py", "--check", Path(named).resolve())
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
