"""Another process that opens what this one shares."""

import pytest
from helpers.opener import Opener


@pytest.fixture(scope="module")
def opener():
    made = Opener()
    yield made
    made.end()
