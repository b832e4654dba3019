"""Examples in docstrings run and show what they say; those that need files, a trainer or a model are marked +SKIP."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import infoform.data
import infoform.integrations

ROOMS = (infoform.data, infoform.integrations)
MODULES = [f"{room.__name__}.{module.name}" for room in ROOMS for module in pkgutil.iter_modules(room.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    assert doctest.testmod(import_module(name)).failed == 0


def test_there_are_examples() -> None:
    tests = [test for name in MODULES for test in doctest.DocTestFinder().find(import_module(name))]
    assert sum(bool(test.examples) for test in tests) > 15
