"""The caches in front of the compiler."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys

import pytest

from gpuinterop import jit
from gpuinterop.errors import DeviceError, LibraryNotFoundError
from gpuinterop.jit import cache as cache_module
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
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GPUINTEROP_CACHE_DIR", "~/kernels")
    assert cache_directory() == tmp_path / "home" / "kernels"


def test_a_folder_of_another_user_is_not_trusted(monkeypatch, tmp_path):
    """Where there is no home: whoever made the folder first could have put kernels into it."""
    monkeypatch.setattr(cache_module.tempfile, "tempdir", str(tmp_path))
    own = tmp_path / f"gpuinterop-{os.getuid()}"
    for plant, expected in ((lambda: None, True), (lambda: own.symlink_to(tmp_path), False)):
        plant()
        cache_module._own_temporary.cache_clear()
        assert (cache_module._own_temporary() == own) == expected
        own.rmdir() if not own.is_symlink() else own.unlink()
    cache_module._own_temporary.cache_clear()


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


# ---- several processes, and folders that will not have it -----------------------------------------

COMPILE = """
import sys, hashlib, warnings
warnings.simplefilter("error" if sys.argv[1] == "strict" else "ignore")
from gpuinterop import jit
digest = hashlib.sha256()
for i in range(8):
    text = 'extern "C" __global__ void k(int* x) { x[0] = %d; }' % i
    digest.update(jit.compile_source(text, 90))
print(digest.hexdigest())
"""


def start(folder, mode="strict", launcher=()):
    environment = {**os.environ, "GPUINTEROP_CACHE_DIR": str(folder)}
    return subprocess.Popen([*launcher, sys.executable, "-c", COMPILE, mode], env=environment,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip


def finish(*processes):
    found = set()
    for process in processes:
        out, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
        found.add(out.strip())
    return found


def test_processes_that_fill_one_folder_at_once(folder):
    (digest,) = finish(*(start(folder) for _ in range(4)))
    assert len(entries(folder)) == 8
    assert not list(folder.glob(".new-*"))
    assert finish(start(folder)) == {digest}


def test_a_folder_that_may_not_be_written(folder):
    """Entries in it serve, new ones do without: an image's cache, mounted for reading."""
    jit.compile_source(TEXT, 90)
    (entry,) = entries(folder)
    folder.chmod(0o500)
    try:
        jit.clear_cache()
        if os.access(folder, os.W_OK):  # root writes anywhere
            blocked = folder / "blocked"
            blocked.write_text("")
            cache = DiskCache(blocked)
        else:
            cache = DiskCache(folder)
            assert cache.get(entry.stem) is not None
        with pytest.warns(RuntimeWarning, match="cannot be kept"):
            cache.put("new", b"code")
        assert cache.get("new") is None
    finally:
        folder.chmod(0o700)


def test_a_disk_that_is_full(tmp_path, monkeypatch):
    """A write that breaks off leaves no entry and no remains, and costs a warning, not the result."""

    def full(handle, mode):
        os.close(handle)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    cache = DiskCache(tmp_path)
    cache.put("before", b"code")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdopen", full)
        with pytest.warns(RuntimeWarning, match="No space left"):
            cache.put("lost", b"code")
    assert [path.stem for path in tmp_path.iterdir()] == ["before"]
    assert cache.get("lost") is None
    cache.put("after", b"code")
    assert cache.get("after") == b"code"


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("sh") is None, reason="needs ulimit -f")
def test_a_process_that_may_write_no_file(folder, tmp_path_factory):
    """ulimit -f 0: every write fails midway, in the system and not in a stand-in."""
    other = tmp_path_factory.mktemp("limited")
    limited = ("sh", "-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh")
    assert finish(start(other, "lenient", limited)) == finish(start(folder))
    assert not entries(other)
    assert not list(other.glob(".new-*"))


def test_an_entry_that_another_process_removes(folder):
    """The size bound of one process takes files away under the others."""
    cache = DiskCache(folder)
    cache.put("a", b"code")
    (folder / "a.cubin").unlink()
    assert cache.get("a") is None
    cache.clear()
    cache.put("a", b"code")
    assert cache.get("a") == b"code"


def test_a_bound_of_nothing_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUINTEROP_CACHE_MB", "0")
    cache = DiskCache(tmp_path)
    cache.put("a", b"code")
    assert cache.get("a") is None
    monkeypatch.setenv("GPUINTEROP_CACHE_MB", "many")
    with pytest.warns(RuntimeWarning, match="GPUINTEROP_CACHE_MB"):
        assert DiskCache(tmp_path).limit_bytes == 512 << 20


def test_remains_of_a_killed_process_are_swept(tmp_path):
    """A process killed between its write and the rename leaves a file that no name leads to."""
    old, fresh = tmp_path / ".new-old", tmp_path / ".new-fresh"
    for file in (old, fresh):
        file.write_bytes(bytes(100))
    os.utime(old, (1, 1))
    DiskCache(tmp_path).put("a", b"code")
    assert not old.exists()
    assert fresh.exists()  # somebody may be writing it at this moment


def test_the_folder_of_a_user_who_does_not_exist_is_warned_about(monkeypatch):
    monkeypatch.setenv("GPUINTEROP_CACHE_DIR", "~no-such-user/kernels")
    with pytest.warns(RuntimeWarning, match="who does not exist"):
        assert "~" not in str(cache_directory())
