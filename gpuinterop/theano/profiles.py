"""Theano's additions to the printed profiles: the time by place, and the sum over all functions."""

from __future__ import annotations

import atexit
import sys
from typing import Any

from pytensor.compile.debug import profiling
from pytensor.configdefaults import config

from gpuinterop.pytensor.profile import kind_of

_installed = False


def install() -> None:
    """Print both with ``profile=True``. Each operation is timed to its end, so that transfers show their own time."""
    global _installed
    if _installed:
        return
    _installed = True
    profiling.register_profiler_printer(_print_where)
    atexit.register(_print_sum)  # registered before PyTensor's own printer, so it runs after that


def _print_where(
    _message: Any, _compile_time: Any, _call_time: Any, apply_time: dict[Any, float], *_: Any, file: Any
) -> None:  # fmt: skip
    """Print the line to which the tutorial refers."""
    total = sum(apply_time.values())
    if not total:
        return
    spent = dict.fromkeys(("cpu", "gpu", "transfer"), 0.0)
    for key, seconds in apply_time.items():
        node = key[1] if isinstance(key, tuple) else key
        kind = kind_of(node)
        spent["transfer" if kind.startswith("to ") else "gpu" if kind == "device" else "cpu"] += (
            seconds
        )
    parts = [
        f"{spent[where]:.3e}s({100 * spent[where] / total:.2f}%) in {where} op" for where in spent
    ]
    print(f"   Spent {parts[0]}, {parts[1]} and {parts[2]}\n", file=file)


def _print_sum() -> None:
    """Print the profile of all functions together."""
    profiles = [p for p in profiling._atexit_print_list if p.fct_callcount]
    # Without this option PyTensor's printer, which ran before, printed none of them.
    if profiles and not config.profile:
        config.profile = True
        profiling._atexit_print_fn()
    if len(profiles) < 2:
        return
    total = profiling.ProfileStats(atexit_print=False)
    total.nb_nodes, total.linker_make_thunk_time = 0, {}
    total.message = (
        f"Sum of all({len(profiles)}) printed profiles at exit excluding Scan op profile."
    )
    for profile in profiles:
        for name, value in vars(profile).items():
            if name == "line_width" or isinstance(value, bool):
                continue
            present = getattr(total, name, None)
            if isinstance(value, (int, float)) and isinstance(present, (int, float)):
                setattr(total, name, present + value)
            elif isinstance(value, dict) and isinstance(present, dict):
                present.update(value)
    total.summary(
        file=sys.stderr, n_ops_to_print=config.profiling__n_ops, n_apply_to_print=config.profiling__n_apply
    )  # fmt: skip
