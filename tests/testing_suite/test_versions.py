"""The library versions that the matrix prints."""

import importlib.metadata

import pytest

from gpuinterop.exchange import package_versions

ROOTS = {"cuda": ["cuda-pathfinder", "cuda_core", "cuda-bindings"], "tvm_ffi": ["apache-tvm-ffi"]}


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        ("cuda.core", "of cuda_core"),
        ("tvm_ffi", "of apache-tvm-ffi"),
        ("cuda.none", ""),
        ("none", ""),
    ],
)
def test_namespace_is_distinguished_from_its_packages(monkeypatch, package, expected):
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: ROOTS)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"of {name}")
    assert package_versions.version_of(package) == expected
