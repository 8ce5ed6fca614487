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


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """A module with a bridge, whose import takes a while or, if the variable is set, is interrupted."""
    text = (
        "import os, time\nif os.environ.get('INTERRUPT'):\n    raise KeyboardInterrupt\ntime.sleep(1.5)\n"
        "from gpuinterop.testing.peers import load\nbridge = load('buffer')\n"
    )
    (tmp_path / "slow.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)


def test_colours_and_progress_are_for_terminals_only(slow):
    coloured, plain = seen(MATRIX), seen(MATRIX, NO_COLOR="1")
    assert "to   buffer  \x1b[32mS\x1b[0m       \x1b[33mC\x1b[0m" in coloured
    assert "3 \x1b[32mshared\x1b[0m, 1 \x1b[33mcopied\x1b[0m" in coloured
    for text in coloured, plain:
        assert re.search(r"\rgpuinterop matrix \[\.{20}\] 0 of 1, \d s .*\r {60}\r", text)
    assert "\x1b" not in plain
    piped = subprocess.run(MATRIX, capture_output=True, text=True, check=True)
    assert piped.stderr == ""
    assert "\x1b" not in piped.stdout
    assert "to   buffer  S       C\n" in piped.stdout


def test_an_interrupt_prints_no_traceback(slow):
    around = {**os.environ, "INTERRUPT": "1"}
    done = subprocess.run(MATRIX, env=around, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "gpuinterop matrix: interrupted\n")


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
