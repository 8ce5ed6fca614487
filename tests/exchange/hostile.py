"""Try the malformed inputs one by one, those named on the command line or all; print each outcome.

test_hostile.py runs this in a process of its own, because the wrong answer to several is a crash.
The cases for CUDA need a driver, real or fake; the others must run without.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import hostile_foreign  # noqa: F401  (these fill the table)
import hostile_objects  # noqa: F401
import hostile_structs  # noqa: F401
from hostile_table import CASES
from peers import start_counting


def outcome(function) -> dict[str, Any]:
    try:
        function()
    except BaseException as error:  # the answer itself
        names = [cls.__name__ for cls in type(error).__mro__]
        return {"error": names, "message": str(error)}
    return {"error": None, "message": ""}


def main(names: list[str]) -> None:
    for name in names:
        print(json.dumps({"case": name, "state": "begun"}), flush=True)
        start_counting()
        print(json.dumps({"case": name, "state": "done", **outcome(CASES[name][0])}), flush=True)


def run(arguments: list[str]) -> None:
    if arguments == ["--list"]:
        rows = CASES.items()
        print(json.dumps({n: ([c.__name__ for c in row[1]], *row[2:]) for n, row in rows}))
    else:
        main(arguments)


if __name__ == "__main__":
    run(sys.argv[1:])
