"""Test doubles: a fake CUDA driver and cuBLAS, fakes of GPU libraries, and libraries with faults.

``pytest --driver=fake`` runs the tests of CUDA devices on the fake driver: see tests/conftest.py.
"""
