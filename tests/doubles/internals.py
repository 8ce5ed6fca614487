"""The internal names that several tests need, because no public name shows or resets what they do.

Tests import this module in their place, so that a change inside the package changes one file here.
"""

import functools
from importlib import metadata

from gpuinterop import _core, converters, devices
from gpuinterop.arrays import dtypes
from gpuinterop.devices import foreign_handles
from gpuinterop.exchange import library_streams, registry
from gpuinterop.product import tensor_product
from gpuinterop.testing import Bridge, layouts, memory, peers, run_case, stream_order


def forget_dtypes() -> None:
    """Make the next use of each dtype import it from ml_dtypes again."""
    dtypes.dtype_from_id.cache_clear()


def forget_calls() -> None:
    """Empty the core's cache of calls."""
    _core._forget_calls()


def compute_capability() -> int:
    return _core._compute_capability(0)


def multiply_all_shapes_on_tensor_cores(monkeypatch) -> list[tuple]:
    """Let products with the precision tf32x3 use tensor cores where cuBLAS is faster, too; list their shapes."""
    chosen: list[tuple] = []

    def choose(*shape) -> bool:
        chosen.append(shape)
        return True

    monkeypatch.setattr(tensor_product, "is_faster", choose)
    _core._forget_calls()
    return chosen


def forget_failed_imports() -> None:
    registry.failures.clear()


def save_registry() -> tuple[dict, dict]:
    return dict(registry.entries), dict(registry.canonical_names)


def restore_registry(saved: tuple[dict, dict]) -> None:
    """Put the registry back, and forget the names of the tests' own library."""
    registry.register(saved[0]["numpy"])  # as after any change, nothing stays remembered
    for table, before in zip((registry.entries, registry.canonical_names), saved, strict=True):
        table.clear()
        table.update(before)
    registry._plugins.cache_clear()
    registry.broken_converters.clear()
    for name in ("to_toy", "from_toy"):
        vars(converters).pop(name, None)


def forget_entry_points() -> None:
    """Let the next look-up read the installed entry points again."""
    registry._plugins.cache_clear()


def install_entry_points(monkeypatch, *points: object) -> None:
    """Make these the only entry points of converters."""
    monkeypatch.setattr(metadata, "entry_points", lambda group: list(points) if group else [])
    registry._plugins.cache_clear()


def install_converter(folder, library: str, converter: str) -> None:
    """Let a folder of the path look as if the converter of a library had been installed in it."""
    info = folder / f"{library}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {library}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[gpuinterop.converters]\n{library} = {converter}\n")


def install_only(monkeypatch, *packages: str) -> None:
    """Let the package find no other packages installed."""
    monkeypatch.setattr(registry, "installed", lambda package: package in packages)


def leave_streams_of(*libraries: str) -> None:
    """Let gpuinterop.stream() not enter the streams of these libraries in this process."""
    for library in libraries:
        del library_streams.ENTERS[library]


def enter_streams_by(monkeypatch, **enters: object) -> None:
    """Let gpuinterop.stream() enter streams by these functions, and by no other libraries'."""
    monkeypatch.setattr(library_streams, "ENTERS", enters)


def enter_streams_also_by(monkeypatch, **enters: object) -> None:
    monkeypatch.setattr(library_streams, "ENTERS", {**library_streams.ENTERS, **enters})


def bridge(library: str) -> Bridge:
    """The compatibility suite's bridge of an installed library."""
    return peers.load(library)


def pause_for(monkeypatch, microseconds: int) -> None:
    """Let the suite's slow producers be less slow."""
    slow = functools.partial(memory.slow, microseconds=microseconds)
    monkeypatch.setattr(stream_order, "slow", slow)


def run_order(bridge: Bridge, direction: str):
    """The suite's case of the order of streams with one library, on the first GPU."""
    kind, place = dtypes.as_supported_dtype("float32"), devices.device("cuda:0")
    case = run_case.Case(bridge, direction, place, layouts.LAYOUTS["C"], kind, "side")
    stream_order.run_order(case)
    return case.cell


slow = memory.slow  # (stream, device): keeps a stream busy, by the driver alone
device_pair = (
    foreign_handles.device_pair
)  # another library's device as DLPack's numbers, also without a GPU
used_on = _core.used_on  # notes work that another library has queued on a stream
is_capturing_anywhere = (
    _core.capturing
)  # whether the core knows of a running capture of any library
inspect_pointer = _core.inspect_pointer  # what the driver reports about an address
is_pinned_here = _core.is_pinned_here  # whether page-locked memory of the package is in use there
look_into = _core._look_into  # takes a text, of any length, into the core
share_ordinary = _core.share_ordinary  # the import without Python, None where Python must decide
export_via = _core.export_via  # the export by the C table of any class
