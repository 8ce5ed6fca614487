"""Versions and CUDA majors from metadata, broken metadata included."""

import pytest

from gpuinterop.exchange.package_versions import canonical, numbers, scan


class Distribution:
    """As importlib.metadata gives it, as far as the inventory looks."""

    def __init__(self, name, version, text=None):
        self.metadata = {"Name": name, "Version": version}
        self.text = text

    def read_text(self, path):
        return self.text


class Damaged:
    @property
    def metadata(self):
        raise OSError("Input/output error")


class Nameless:
    metadata = None


def rows(*distributions):
    return {row.distribution: row for row in scan(distributions)}


@pytest.mark.parametrize(
    ("name", "version", "text", "cuda"),
    [
        ("cupy-cuda12x", "13.6.0", None, 12),
        ("cupy_cuda13x", "14.2.0", None, 13),
        ("cupy", "14.2.0", None, None),
        ("torch", "2.11.0+cu130", None, 13),
        ("torch", "2.9.1+cu126", None, 12),
        ("torch", "2.13.0+cpu", None, 0),
        ("torch", "2.11.0", "cuda: Optional[str] = '13.0'\n", 13),
        ("torch", "2.11.0", "__version__ = 'x'\ncuda: Optional[str] = None\n", 0),
        ("torch", "2.12.0", None, None),
        ("jax-cuda12-plugin", "0.10.0", None, 12),
        ("cuda-bindings", "13.5.0", None, 13),
        ("nvidia-cuda-nvrtc-cu12", "12.9.86", None, 12),
        ("nvidia-cublas", "13.1.0", None, 13),
        ("numpy", "2.4.6", None, None),
    ],
)
def test_cuda_major(name, version, text, cuda):
    found = rows(Distribution(name, version, text))
    assert found[name].cuda == cuda
    assert found[name].version == version


@pytest.mark.parametrize(
    ("installed", "listed"),
    [
        ([("requests", "2"), ("numpy-stl", "1")], []),
        ([("numpy", "2.0"), ("NumPy", "1.0")], ["numpy 2.0"]),  # the first on the path counts
        ([("cupy", "1"), ("cupy-cuda12x", "2")], ["cupy 1", "cupy-cuda12x 2"]),
    ],
)
def test_each_known_distribution_is_listed_once(installed, listed):
    found = scan([Distribution(*one) for one in installed])
    assert sorted(f"{row.distribution} {row.version}" for row in found) == listed


@pytest.mark.parametrize("folder", [False, True])
def test_a_package_without_its_module_is_broken(monkeypatch, tmp_path, folder):
    if folder:  # as an installation that was broken off, or undone, leaves it
        (tmp_path / "gnumpy").mkdir()
        monkeypatch.syspath_prepend(tmp_path)
    assert "gnumpy is missing" in rows(Distribution("gnumpy", "0.2"))["gnumpy"].broken


def test_damaged_metadata_does_not_stop_the_scan():
    found = rows(Damaged(), Nameless(), Distribution("numpy", ""), Distribution("", "1"))
    assert list(found) == ["numpy"]
    assert "no version" in found["numpy"].broken


def test_names_and_numbers():
    assert canonical("CuPy_cuda12.x") == "cupy-cuda12-x"
    assert numbers("2.11.0+cu130") == (2, 11, 0)
    assert numbers("2.11rc1") == (2, 11)
    assert numbers("dev") == ()
