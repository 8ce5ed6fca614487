"""The devices of these tests, without the fake driver, for which g++ would compile a kernel for each of many cases."""

import pytest


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)], scope="module")
def place(request) -> str:
    """The host, or a real GPU; tests of a few kernels take `device`, which may be on the fake driver."""
    return request.param
