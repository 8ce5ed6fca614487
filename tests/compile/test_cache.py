"""The caches in front of the compiler."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gpuinterop import jit
from gpuinterop.errors import DeviceError, LibraryNotFoundError
from gpuinterop.jit import compiler
from gpuinterop.jit.cache import DiskCache, MemoryCache, cache_directory
from gpuinterop.jit.nvrtc import Target, select_target

TEXT = 'extern "C" __global__ void k(int* x) { x[0] = 1; }'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUINTEROP_CACHE_DIR", str(tmp_path))
    jit.clear_cache()
    compiler._identity.cache_clear()  # what is remembered of the compiler is in the folder too
    try:
        jit.compiler_version()
    except LibraryNotFoundError as error:
        pytest.skip(f"no NVRTC: {error.got}")
    yield tmp_path
    jit.clear_cache()


def entries(folder):
    return sorted(folder.glob("*.cubin"))


def test_an_entry_is_written_once_and_read_again(folder, monkeypatch):
    code = jit.compile_source(TEXT, 90)
    assert len(entries(folder)) == 1
    jit.clear_cache()
    monkeypatch.setattr(compiler, "nvrtc_compile", lambda *_: pytest.fail("compiled again"))
    assert jit.compile_source(TEXT, 90) == code


@pytest.mark.parametrize(
    "change", [{"arch": 80}, {"options": ("-lineinfo",)}, {"source": TEXT + "\n"}]
)
def test_whatever_changes_the_code_changes_the_key(folder, change):
    jit.compile_source(TEXT, 90)
    jit.compile_source(**{"source": TEXT, "arch": 90, **change})
    assert len(entries(folder)) == 2


@pytest.mark.parametrize("damage", [b"", b"short", None])
def test_a_damaged_entry_is_a_miss(folder, damage):
    code = jit.compile_source(TEXT, 90)
    (entry,) = entries(folder)
    whole = entry.read_bytes()
    entry.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]) if damage is None else damage)
    jit.clear_cache()
    assert jit.compile_source(TEXT, 90) == code
    assert entry.read_bytes() == whole


def test_entries_are_cubins_for_nvidias_tools(folder):
    jit.compile_source(TEXT, 90)
    assert entries(folder)[0].read_bytes().startswith(b"\x7fELF")


def test_a_second_process_loads_no_compiler(folder):
    jit.compile_source(TEXT, 90)
    check = (
        "import sys; from gpuinterop import jit; from gpuinterop.jit import nvrtc;"
        f"jit.compile_source({TEXT!r}, 90); assert nvrtc._library.cache_info().currsize == 0"
    )
    environment = {**os.environ, "GPUINTEROP_CACHE_DIR": str(folder)}
    subprocess.run([sys.executable, "-c", check], env=environment, check=True)


def test_the_size_bound_drops_the_oldest(tmp_path):
    cache = DiskCache(tmp_path, limit_bytes=5000)
    for i in range(20):
        cache.put(f"{i:02}", bytes(600))
        os.utime(tmp_path / f"{i:02}.cubin", (i + 1, i + 1))
    kept = [path.stem for path in entries(tmp_path)]
    assert "19" in kept
    assert "00" not in kept
    assert sum(path.stat().st_size for path in entries(tmp_path)) <= 5000


def test_no_room_on_disk_is_one_warning(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    cache = DiskCache(blocked / "below")
    with pytest.warns(RuntimeWarning, match="GPUINTEROP_CACHE_DIR"):
        cache.put("a", b"x")
    cache.put("b", b"x")  # quiet
    assert cache.get("a") is None


def test_the_memory_cache_is_bounded():
    cache = MemoryCache(limit=2)
    for key in "abc":
        cache.put(key, key.encode())
    assert cache.get("a") is None
    assert cache.get("c") == b"c"


def test_the_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.delenv("GPUINTEROP_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_directory() == tmp_path / "gpuinterop" / "kernels"


@pytest.mark.parametrize(
    ("capability", "target"),
    [
        (90, Target(90, True)),
        (89, Target(86, True)),
        (103, Target(100, True)),
        (130, Target(120, False)),
    ],
)
def test_targets(capability, target):
    assert select_target(capability, (75, 80, 86, 90, 100, 120)) == target


def test_a_device_older_than_the_compiler():
    with pytest.raises(DeviceError, match=r"7\.5 or newer"):
        select_target(61, (75, 80))
