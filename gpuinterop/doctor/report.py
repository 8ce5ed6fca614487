"""The report of the doctor: the facts, the findings, and the page that prints them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from gpuinterop.errors import printable
from gpuinterop.exchange.package_versions import Installed, numbers

SCHEMA = "gpuinterop.doctor/1"


@dataclass(frozen=True)
class Finding:
    """A problem and its fix. A warning breaks something; a hint costs speed or a dtype."""

    code: str  # an error code for programs
    text: str
    fix: str
    level: str = "warning"  # or "hint"

    def __str__(self) -> str:
        return f"{self.level}: {self.text}\n  fix: {self.fix}"


@dataclass
class Report:
    """The result of `doctor`; prints as a page, and `to_json` returns JSON."""

    system: dict[str, str] = field(default_factory=dict)
    driver: dict[str, Any] = field(default_factory=dict)
    devices: list[dict[str, Any]] = field(default_factory=list)
    libraries: list[Installed] = field(default_factory=list)
    runtime: dict[str, str] = field(default_factory=dict)
    memory: dict[str, dict[str, int]] = field(default_factory=dict)
    product_precision: str = "exact"  # of float32, in this thread
    environment: dict[str, str] = field(default_factory=dict)
    # Converters of other packages that are disabled, and parts of the report that failed, with the reasons.
    disabled_converters: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    # Libraries and converters that failed in the trial, with the error.
    failing: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def find(self, library: str) -> list[Installed]:
        """Return the installed distributions of a library."""
        return [row for row in self.libraries if row.library == library]

    @property
    def cuda(self) -> int:
        """The driver's CUDA major version, 0 without a driver."""
        return (numbers(self.driver.get("cuda") or "") or (0,))[0]

    @property
    def warnings(self) -> list[Finding]:
        """The findings that break something, each with `text` and `fix`."""
        return [finding for finding in self.findings if finding.level == "warning"]

    @property
    def hints(self) -> list[Finding]:
        """The findings that only cost speed or a feature."""
        return [finding for finding in self.findings if finding.level == "hint"]

    @property
    def ok(self) -> bool:
        """Whether there are no warnings. A machine without a GPU causes none."""
        return not self.warnings

    def to_json(self, indent: int | None = None) -> str:
        """The report as JSON of the schema "gpuinterop.doctor/1"."""
        return json.dumps({"schema": SCHEMA, "ok": self.ok, **asdict(self)}, indent=indent)

    def text(self, verbose: bool = False) -> str:
        """The report as a page: one line for each library, or with `verbose` everything."""
        return printable("\n".join(_page(self, verbose)))

    def __str__(self) -> str:
        return self.text()


def _page(report: Report, verbose: bool) -> Iterator[str]:
    system = {"gpuinterop": "?", "python": "?", "platform": "?", **report.system}
    yield "gpuinterop {gpuinterop}, Python {python}, {platform}".format_map(system)
    for name, text in _places(report):
        yield f"{name:11} {text}"
    yield ""
    for row in report.libraries:
        built = {None: "", 0: "without CUDA"}.get(row.cuda, f"CUDA {row.cuda}")
        notes = built, "loaded" * row.loaded, f"BROKEN: {row.broken}" * bool(row.broken)
        yield f"{row.library:16} {row.version or '?':14} {', '.join(filter(None, notes))}".rstrip()
    yield ""
    if verbose:
        yield report.to_json(indent=1) + "\n"
    yield from map(str, report.findings)
    counts = (("warning", len(report.warnings)), ("hint", len(report.hints)))
    words = [f"{n} {word}{'s' * (n != 1)}" for word, n in counts]
    yield ", ".join(words) if report.findings else "no problems found"


def _places(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the driver, the devices, their streams and libraries, and the memory that is in use."""
    driver = report.driver
    reason = (driver.get("reason") or "unknown").partition(";")[0]
    yield "driver", (
        f"CUDA {driver['cuda']}, {driver['library']}" if driver.get("available")
        else f"none, arrays are in host memory ({reason})"
    )  # fmt: skip
    for row in report.devices:
        context = "primary context active" if row["primary_active"] else "no context"
        if row["current"]:
            context += ", current" if row["primary"] else ", ANOTHER CONTEXT IS CURRENT"
        free = f"{_bytes(row['free_bytes'])} free of " if "free_bytes" in row else ""
        total = _bytes(row["total_bytes"])
        yield row["device"], f"{row['name']}, compute {row['compute']}, {free}{total}, {context}"
        if "stream" in row:
            yield "stream", f"{row['stream']} on {row['device']}"
    yield from report.runtime.items() if report.devices else ()
    if report.product_precision != "exact":
        yield "products", f"of float32: {report.product_precision}"
    for name, held in report.memory.items():
        live, pool = held["live_bytes"], held.get("pool_bytes", held.get("cached_bytes", 0))
        if live or pool:
            yield "memory", f"{name}: {_bytes(live)} in use, {_bytes(pool)} in its pool"


def _bytes(n: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.4g} {unit}"
        n /= 1024
    return f"{n:.1f} GiB"
