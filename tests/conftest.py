"""What every test starts with."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_module_of_an_earlier_user() -> Iterator[None]:
    """Forget the `model.py` of a test that plays a user: the command imports it by its name."""
    yield
    sys.modules.pop("model", None)
