"""The caches in front of the compiler."""

import itertools
import os
import random
import shutil
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from doubles import driver

from gpuinterop import jit
from gpuinterop.errors import DeviceError
from gpuinterop.jit import compiler
from gpuinterop.jit.cache import DiskCache, cache_directory
from gpuinterop.jit.nvrtc import Target, select_target

TEXT = 'extern "C" __global__ void k(int* x) { x[0] = 1; }'


@pytest.fixture
def folder(tmp_path, monkeypatch, nvrtc):
    monkeypatch.setenv("GPUINTEROP_CACHE_DIR", str(tmp_path))
    compiler._read_note.cache_clear()  # the note is in the folder too
    return cache_directory()


def entries(folder):
    return sorted(folder.glob("gpuinterop-*.cubin"))


def environment_of(folder, **more):
    return {**os.environ, "GPUINTEROP_CACHE_DIR": str(folder.parent), **more}


def test_an_entry_is_written_once_and_read_again(folder, monkeypatch):
    code = jit.compile_source(TEXT, 90)
    assert len(entries(folder)) == 1
    monkeypatch.setattr(compiler, "nvrtc_compile", lambda *_: pytest.fail("compiled again"))
    assert jit.compile_source(TEXT, 90) == code


@pytest.mark.parametrize(
    "change", [{"arch": 80}, {"options": ("-lineinfo",)}, {"source": TEXT + "\n"}]
)
def test_cache_key_depends_on_every_compile_input(folder, change):
    jit.compile_source(TEXT, 90)
    jit.compile_source(**{"source": TEXT, "arch": 90, **change})
    assert len(entries(folder)) == 2


@pytest.mark.parametrize(
    ("line", "options"),
    [('#include "factor.h"', ("-I{}",)), ('# /**/ include "factor.h"', ("--include-path={}",)),
     ("", ("--pre-include={}/factor.h",))],
)  # fmt: skip
def test_a_header_that_changed_is_read_again(folder, tmp_path_factory, line, options):
    beside = tmp_path_factory.mktemp("headers")
    options = tuple(option.format(beside) for option in options)
    text = f"{line}\n{TEXT.replace('1', 'FACTOR')}"
    codes = []
    for factor in (2, 3, 2):
        (beside / "factor.h").write_text(f"#define FACTOR {factor}\n")
        codes.append(jit.compile_source(text, 90, options=options))
    assert codes[0] == codes[2] != codes[1]
    assert entries(folder) == []


def test_a_damaged_entry_is_compiled_again(folder):
    code = jit.compile_source(TEXT, 90)
    (entry,) = entries(folder)
    whole = entry.read_bytes()
    entry.write_bytes(whole[1:])
    assert jit.compile_source(TEXT, 90) == code
    assert entry.read_bytes() == whole


def test_a_second_process_loads_no_compiler(folder):
    jit.compile_source(TEXT, 90)
    check = (
        "import sys; from gpuinterop import jit; from gpuinterop.jit import nvrtc;"
        f"jit.compile_source({TEXT!r}, 90); assert nvrtc._library.cache_info().currsize == 0"
    )
    driver.run(check, **environment_of(folder))


def test_the_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.delenv("GPUINTEROP_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_directory() == tmp_path / "gpuinterop" / "kernels"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GPUINTEROP_CACHE_DIR", "~/kernels")
    assert cache_directory() == tmp_path / "home" / "kernels" / "gpuinterop"


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


# ---- which compiler it is -------------------------------------------------------------------------

STUB = """
#include <string.h>
extern "C" {
int nvrtcVersion(int* a, int* b) { *a = 11; *b = %(minor)s; return 0; }
int nvrtcGetNumSupportedArchs(int* n) { *n = 2; return 0; }
int nvrtcGetSupportedArchs(int* a) { a[0] = 80; a[1] = 90; return 0; }
int nvrtcCreateProgram(void**, const char*, const char*, int, void*, void*) { return 0; }
int nvrtcDestroyProgram(void**) { return 0; }
int nvrtcCompileProgram(void*, int, const char**) { return 0; }
int nvrtcGetCUBINSize(void*, size_t* n) { *n = 4; return 0; }
int nvrtcGetCUBIN(void*, char* out) { memcpy(out, "v11.", 4); return 0; }
}
"""


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    """Two compilers that are neither each other nor the one that is installed."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("compilers")
    for minor in (4, 5):
        source = folder / f"{minor}.cpp"
        source.write_text(STUB % {"minor": minor})
        command = ["g++", "-shared", "-fPIC", "-include", "stddef.h", str(source), "-o"]
        subprocess.run([*command, str(folder / f"libnvrtc{minor}.so")], check=True)
    return folder


def ask(folder, program, **environment):
    program = f"from gpuinterop import jit\nfrom gpuinterop.jit import nvrtc\n{program}"
    return driver.run(program, **environment_of(folder, **environment)).strip()


def test_a_compiler_that_is_named_has_its_own_version_and_cache(folder, stubs):
    whole = "print(jit.compiler_version(), jit.compile_source('text', 90), nvrtc.is_open())"
    installed = jit.compiler_version()
    assert ask(folder, "print(jit.compiler_version())") == str(installed)
    for opened in (True, False):  # the second time the note and the cache serve
        for minor in (4, 5):
            version = ask(folder, whole, GPUINTEROP_LIBNVRTC=str(stubs / f"libnvrtc{minor}.so"))
            assert version == f"(11, {minor}) b'v11.' {opened}"
    assert len(entries(folder)) == 2
    assert ask(folder, "print(jit.compiler_version(), nvrtc.is_open())") == f"{installed} False"


def test_version_of_a_replaced_compiler_is_read_again(folder, stubs, tmp_path):
    library = tmp_path / "libnvrtc.so"
    for minor in (4, 5):
        shutil.copyfile(stubs / f"libnvrtc{minor}.so", tmp_path / "new")
        os.utime(tmp_path / "new", (minor, minor))
        (tmp_path / "new").replace(library)
        version = ask(folder, "print(jit.compiler_version())", GPUINTEROP_LIBNVRTC=str(library))
        assert version == f"(11, {minor})"


def test_damaged_version_note_is_rewritten(folder, stubs):
    named = {"GPUINTEROP_LIBNVRTC": str(stubs / "libnvrtc4.so")}
    show = "print(jit.compiler_version(), jit.supported_archs())"
    assert ask(folder, show, **named) == "(11, 4) (80, 90)"
    (note,) = folder.glob("gpuinterop-*.note")
    whole = note.read_bytes()
    for damaged in (whole.replace(b"[11, 4]", b"[11, 5]"), b"[" * 100_000):
        note.write_bytes(damaged)
        assert ask(folder, show, **named) == "(11, 4) (80, 90)"
        assert note.read_bytes() == whole


# ---- several processes, and folders that will not have it -----------------------------------------

COMPILE = """
import hashlib, warnings
warnings.simplefilter("error")
from gpuinterop import jit
digest = hashlib.sha256()
for i in range(8):
    text = 'extern "C" __global__ void k(int* x) { x[0] = %d; }' % i
    digest.update(jit.compile_source(text, 90))
print(digest.hexdigest())
"""


def start(folder):
    environment = environment_of(folder)
    return subprocess.Popen([sys.executable, "-c", COMPILE], env=environment,
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
    assert not list(folder.glob(".gpuinterop-new-*"))
    assert finish(start(folder)) == {digest}


def test_a_folder_that_may_not_be_written(folder):
    """Entries in it serve, new ones do without: an image's cache, mounted for reading."""
    jit.compile_source(TEXT, 90)
    (entry,) = entries(folder)
    folder.chmod(0o500)
    try:
        if os.access(folder, os.W_OK):  # root writes anywhere
            blocked = folder / "blocked"
            blocked.write_text("")
            cache = DiskCache(blocked)
        else:
            cache = DiskCache(folder)
            assert cache.get(entry.name.removeprefix("gpuinterop-")) is not None
        with pytest.warns(RuntimeWarning, match="cannot be kept.*GPUINTEROP_CACHE_DIR"):
            cache.put("new.cubin", b"code")
        cache.put("new.cubin", b"code")  # warned of once
        assert cache.get("new.cubin") is None
    finally:
        folder.chmod(0o700)


def test_a_bound_of_nothing_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUINTEROP_CACHE_MB", "0")
    cache = DiskCache(tmp_path)
    cache.put("a.cubin", b"code")
    assert cache.get("a.cubin") is None
    monkeypatch.setenv("GPUINTEROP_CACHE_MB", "many")
    with pytest.warns(RuntimeWarning, match="GPUINTEROP_CACHE_MB"):
        assert DiskCache(tmp_path).limit_bytes == 512 << 20


def test_the_bound_drops_the_oldest_and_no_file_of_the_user(tmp_path):
    """GPUINTEROP_CACHE_DIR may be a folder in which the user keeps kernels too."""
    mine = [tmp_path / "user.cubin", tmp_path / ".new-user"]
    remains = (
        tmp_path / ".gpuinterop-new-old"
    )  # of a process that was killed before it renamed the file
    for file in (*mine, remains):
        file.write_bytes(bytes(1 << 20))
        os.utime(file, (1, 1))
    cache = DiskCache(tmp_path, limit_bytes=5000)
    for i in range(20):
        cache.put(f"{i:02}.cubin", bytes(600))
        os.utime(tmp_path / f"gpuinterop-{i:02}.cubin", (i + 1, i + 1))
    kept = [path.name for path in entries(tmp_path)]
    assert "gpuinterop-19.cubin" in kept
    assert "gpuinterop-00.cubin" not in kept
    assert sum(path.stat().st_size for path in entries(tmp_path)) <= 5000
    assert all(file.exists() for file in mine)
    assert not remains.exists()


# ---- folders and files of others, and damaged ones ------------------------------------------------


def _give_away(path, monkeypatch):
    """Let `path` belong to another user."""
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)


@pytest.mark.parametrize(
    ("change", "safe"),
    [("0700", True), ("0755", True), ("0770", False), ("0707", False), ("owner", False), ("parent 0777", True),
     ("link", True), ("link to 0777", False)],
)  # fmt: skip
def test_a_folder_into_which_others_could_write_is_refused(tmp_path, monkeypatch, change, safe):
    folder = tmp_path / "parent" / "kernels"
    cache = DiskCache(folder, 1 << 20)
    cache.put("a.cubin", b"code")
    assert folder.stat().st_mode & 0o777 == 0o700
    if "owner" in change:
        _give_away(folder, monkeypatch)
    elif mode := change.rpartition(" ")[2].removeprefix("link"):
        (folder.parent if "parent" in change else folder).chmod(int(mode, 8))
    if "link" in change:
        (tmp_path / "link").symlink_to(folder)
        cache = DiskCache(tmp_path / "link", 1 << 20)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert cache.get("a.cubin") == (b"code" if safe else None)
        cache.put("b.cubin", b"more")
        assert cache.get("b.cubin") == (b"more" if safe else None)
    assert len(seen) == (not safe), [str(w.message) for w in seen]
    if not safe:
        assert "neither read from nor kept in" in str(seen[0].message)
        assert list(folder.iterdir()) == [folder / "gpuinterop-a.cubin"]


def _damages(path, other):
    """Functions that damage the entry at `path` in one of all the ways in which a file can be wrong."""

    def replace_by(make):
        def damage(_):
            path.unlink()
            make()

        return damage

    def edit(change):
        return lambda random: path.write_bytes(change(random, bytearray(path.read_bytes())))

    def flip(random, data):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        return data

    return [
        edit(flip),
        edit(lambda random, data: data[: random.randrange(len(data))]),
        edit(lambda random, data: data + random.randbytes(random.randrange(1, 99))),
        edit(lambda random, data: data[random.randrange(1, len(data)) :]),
        replace_by(lambda: path.write_bytes(other.read_bytes())),  # another entry under this name
        replace_by(lambda: path.symlink_to("missing")),
    ]


def test_damaged_entries_are_replaced_and_never_read(tmp_path):
    cache, draw = DiskCache(tmp_path, 1 << 20), random.Random(0)
    cache.put("other.cubin", b"other code")
    path, other = tmp_path / "gpuinterop-a.cubin", tmp_path / "gpuinterop-other.cubin"
    for damage in _damages(path, other) * 60:
        code = draw.randbytes(draw.randrange(1, 200))
        cache.put("a.cubin", code)
        assert cache.get("a.cubin") == code
        damage(draw)
        assert cache.get("a.cubin") is None
    cache.put("a.cubin", code)
    assert (cache.get("a.cubin"), cache.get("other.cubin")) == (code, b"other code")


def test_a_folder_in_the_place_of_an_entry_only_warns(tmp_path):
    cache = DiskCache(tmp_path, 1 << 20)
    (tmp_path / "gpuinterop-a.cubin").mkdir()
    assert cache.get("a.cubin") is None
    with pytest.warns(RuntimeWarning, match="cannot be kept"):
        cache.put("a.cubin", b"code")
    assert [p.name for p in tmp_path.iterdir()] == ["gpuinterop-a.cubin"]
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    assert DiskCache(circle, 1 << 20).get("a.cubin") is None
    with pytest.warns(RuntimeWarning, match="cannot be kept"):
        DiskCache(circle, 1 << 20).put("a.cubin", b"code")


def test_threads_that_read_and_write_one_entry_see_it_whole(tmp_path):
    codes = [f"{i}".encode() * 500 for i in range(4)]
    end = time.monotonic() + 0.5

    def write(cache):
        for code in itertools.cycle(codes):
            if time.monotonic() > end:
                return
            cache.put("a.cubin", code)

    def read(cache):
        while time.monotonic() < end:
            assert cache.get("a.cubin") in {None, *codes}

    with ThreadPoolExecutor(4) as pool:
        for task in [
            pool.submit(f, DiskCache(tmp_path, 1 << 20)) for f in (write, write, read, read)
        ]:
            task.result()
