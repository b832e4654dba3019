"""What every test starts with, and the order in which they run."""

import sys
from collections.abc import Iterator

import pytest

import in_parts
from infoform.layers import LAYERS


def pytest_addoption(parser: pytest.Parser) -> None:
    in_parts.add_option(parser)


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    return in_parts.run_share(session)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that start JAX last: its threads do not survive a fork, and other tests fork."""
    items.sort(key=lambda item: item.get_closest_marker("starts_jax") is not None)


@pytest.fixture(autouse=True)
def no_threads_of_jax(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have a test that starts JAX say so, since those after it must not fork."""
    before = _jax_runs()
    yield
    if not before and request.node.get_closest_marker("starts_jax") is None:
        assert not _jax_runs(), "this test starts JAX, whose threads do not survive a fork; mark it with starts_jax."


@pytest.fixture(autouse=True)
def no_rule_of_an_earlier_user() -> Iterator[None]:
    """Forget the rules that a test has registered, as an example of the documentation does."""
    before = dict(LAYERS)
    yield
    if before != LAYERS:
        LAYERS.clear()
        LAYERS.update(before)


@pytest.fixture(autouse=True)
def no_module_of_an_earlier_user() -> Iterator[None]:
    """Forget the `model.py` of a test that plays a user: the command imports it by its name."""
    yield
    sys.modules.pop("model", None)


def _jax_runs() -> bool:
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bool(bridge._backends)
