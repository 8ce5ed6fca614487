"""What a terminal gets: colours, progress, completion, and Ctrl-C without a traceback."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import pytest

GPUINTEROP = [sys.executable, "-m", "gpuinterop"]
MATRIX = [
    *GPUINTEROP,
    "matrix",
    "--device=cpu",
    "--layouts=C,reversed",
    "--dtypes=float32",
    "--bridge=slow",
]


def seen(command, typed="", until="\0", seconds=30, **variables):
    """Return what a command writes to its terminal until it ends or has written `until`."""
    ours, its = pty.openpty()
    around = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "PS1")}
    process = subprocess.Popen(
        command, stdin=its, stdout=its, stderr=its, start_new_session=True,
        env={**around, "TERM": "xterm", **variables},
    )  # fmt: skip
    os.close(its)
    os.write(ours, typed.encode())
    text, end = "", time.monotonic() + seconds
    while until not in text and time.monotonic() < end:
        if select.select([ours], [], [], 0.2)[0]:
            try:
                text += os.read(ours, 65536).decode()
            except OSError:  # the command has ended
                break
    process.kill()
    process.wait()
    os.close(ours)
    return text


# Modules with the calls that gpuinterop makes; each prints what it was called with.
TQDM = """
import sys
def tqdm(items, what, leave):
    yield from items
    print(what, len(items), leave, file=sys.stderr)
"""
CONSOLE = """
class Console:
    def __init__(self, stderr):
        self.stderr = stderr
"""
TRACK = """
import sys
def track(items, what, console, transient):
    yield from items
    print(what, len(items), console.stderr, transient, file=sys.stderr)
"""
RICH = {"rich/__init__.py": "", "rich/console.py": CONSOLE, "rich/progress.py": TRACK}
NO_TQDM, NO_RICH = {"tqdm.py": "raise ImportError"}, {"rich.py": "raise ImportError"}


def write(folder, modules):
    for name, text in modules.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """A bridge whose import takes a while or, if the variable is set, is interrupted; no tqdm and no rich."""
    text = (
        "import os, time\nif os.environ.get('INTERRUPT'):\n    raise KeyboardInterrupt\ntime.sleep(1.5)\n"
        "from gpuinterop.testing.peers import load\nbridge = load('buffer')\n"
    )
    write(tmp_path, {"slow.py": text, **NO_TQDM, **NO_RICH})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)


def test_colours_and_progress_are_for_terminals_only(slow):
    coloured, plain = seen(MATRIX), seen(MATRIX, NO_COLOR="1")
    assert "to   buffer  \x1b[32mS\x1b[0m       \x1b[33mC\x1b[0m" in coloured
    assert "3 \x1b[32mshared\x1b[0m, 1 \x1b[33mcopied\x1b[0m" in coloured
    assert "\x1b" not in plain
    piped = subprocess.run(MATRIX, capture_output=True, text=True, check=True)
    assert piped.stderr == ""
    assert "\x1b" not in piped.stdout
    assert "to   buffer  S       C\n" in piped.stdout


@pytest.mark.parametrize(
    ("modules", "shown"),
    [
        ({"tqdm.py": TQDM, **RICH}, "{0} 1 False\r\n{0} 4 False\r\n"),
        (RICH, "{0} 1 True True\r\n{0} 4 True True\r\n"),
        ({}, ".\r\n"),
    ],
    ids=["tqdm", "rich", "dots"],
)
def test_progress_is_that_of_tqdm_or_rich_or_a_dot_a_second(slow, tmp_path, modules, shown):
    write(tmp_path, modules)
    assert seen(MATRIX).startswith(f"{shown.format('gpuinterop matrix')}cpu, float32\r\n")


@pytest.mark.parametrize("command", ["explain", "draw"])
def test_a_command_without_items_shows_its_seconds(command, tmp_path, monkeypatch):
    late = "import time\ntime.sleep(3)\nraise ImportError"
    write(tmp_path, {**NO_TQDM, **NO_RICH, "torch.py": late})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    assert re.match(r"\.+\r\n\w", seen([*GPUINTEROP, command, "--shape=3", "--to=torch"]))


def test_an_interrupt_prints_no_traceback(slow):
    around = {**os.environ, "INTERRUPT": "1"}
    done = subprocess.run(MATRIX, env=around, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "gpuinterop matrix: interrupted\n")


def test_an_interrupt_has_a_line_of_its_own_below_the_dots(slow, tmp_path):
    write(tmp_path, {"stopped.py": "raise KeyboardInterrupt"})
    shown = seen([*MATRIX, "--bridge=stopped"])
    assert re.fullmatch(r"\.+\r\ngpuinterop matrix: interrupted\r\n", shown)


@pytest.mark.parametrize(
    ("shell", "options"), [("bash", ["--norc", "--noprofile", "-i"]), ("zsh", ["-f", "-i"])]
)
def test_a_shell_completes_commands_options_and_values(shell, options, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([*GPUINTEROP, "completion", shell], capture_output=True, check=True)
    (tmp_path / "script").write_bytes(done.stdout)
    (tmp_path / "matrix.json").touch()
    typed = f". {tmp_path}/script\ngpuinterop expl\t--lay\tfli\t--to tor\t-x {tmp_path}/matr\t"
    text = seen([shell, *options], typed, until="matrix.json", PS1="> ", HOME=str(tmp_path))
    words = re.sub(r"\x1b\[[?\d]*[a-zA-Z]| ?\x08", "", text)
    assert "gpuinterop explain --layout flipped --to torch -x " in " ".join(words.split())
