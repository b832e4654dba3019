"""The documentation site: all of the public names are in it, its equations are MathML, and it needs no network.

`make docs` builds it with warnings as errors, which checks links and anchors; here is what that does not see.
"""

import importlib
import inspect
import pydoc
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import infoform
from infoform import baselines, experiments

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MODULES = (
    "metrics",
    "integrations.sklearn",
    "integrations.lightning",
    "integrations.huggingface",
    "integrations.hub",
    "integrations.mlflow",
    "integrations.tables",
    "integrations.tensorboard",
)
EQUATION = re.compile(r"^```math\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


def documented() -> set[str]:
    """Return the names that the API reference is generated for, or has a heading for."""
    texts = [page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md")]
    return {
        name for text in texts for name in re.findall(r"^(?:::: |## .*#)(infoform[\w.]*)", text, flags=re.MULTILINE)
    }


def public() -> dict[str, Any]:
    """Return what users are to import, by the name in the reference."""
    names = {f"infoform.{name}": getattr(infoform, name) for name in infoform.__all__ if name != "__version__"}
    names |= {f"infoform.baselines.{name}": getattr(baselines, name) for name in baselines.__all__}
    names |= {f"infoform.experiments.{name}": getattr(experiments, name) for name in experiments.__all__}
    return {name: value for name, value in names.items() if not isinstance(value, dict)}


def resolve(path: str) -> Any:
    """Return what a dotted name stands for, also in a module that hides behind its function."""
    found = pydoc.locate(path)
    home, _, name = path.rpartition(".")
    return getattr(importlib.import_module(home), name) if found is None else found


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = spec_from_file_location("site_hooks", ROOT / ".mkdocs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(public()))
def test_every_public_name_has_a_docstring_and_is_in_the_reference(name: str) -> None:
    value = public()[name]
    assert inspect.getdoc(value)
    own = f"{name}.{name.rpartition('.')[2]}"  # a function that has its module's name
    assert {name, own} & documented()


@pytest.mark.parametrize("name", MODULES)
def test_every_public_function_and_class_of_a_module_has_a_docstring(name: str) -> None:
    path = f"infoform.{name}"
    assert path in documented()
    module = importlib.import_module(path)
    for key, value in vars(module).items():
        if not key.startswith("_") and getattr(value, "__module__", None) == path and callable(value):
            assert inspect.getdoc(value), f"{path}.{key}"


@pytest.mark.parametrize("name", sorted(documented()))
def test_every_name_of_the_reference_exists(name: str) -> None:
    assert resolve(name) is not None


def test_every_function_of_the_equations_page_exists() -> None:
    names = re.findall(r"`(infoform\.[\w.]+)`", (DOCS / "equations.md").read_text(encoding="utf-8"))
    assert len(names) > 40
    for name in names:
        found = resolve(name)
        assert callable(found) or isinstance(found, property) or name.endswith("EXPERIMENT") or hasattr(found, "func")


def equations() -> list[str]:
    return [source for page in DOCS.rglob("*.md") for source in EQUATION.findall(page.read_text(encoding="utf-8"))]


def test_there_are_equations() -> None:
    assert len(equations()) > 8


@pytest.mark.parametrize("source", equations(), ids=lambda source: source[:24])
def test_every_equation_becomes_mathml(source: str, hooks: ModuleType) -> None:
    mathml = hooks.equation(source)
    assert "<math" in mathml
    assert "\\" not in mathml  # a command that was not understood
    assert "<mi>&</mi>" not in mathml  # nor an alignment


def test_what_comes_from_elsewhere_is_found(hooks: ModuleType) -> None:
    page = '<a href="https://a.org"></a><script src="https://b.org/x.js"></script><link rel=x href=//c.org/y.css>'
    assert hooks.from_elsewhere(page) == ["https://b.org/x.js", "//c.org/y.css"]


def test_the_table_of_experiments_has_all_of_them(hooks: ModuleType) -> None:
    table = hooks.experiments_table(DOCS / "experiments")
    assert all(name in table for name in experiments.EXPERIMENTS)
    for linked in re.findall(r"\(experiments/([\w-]+)\.md\)", table):
        assert (DOCS / "experiments" / f"{linked}.md").exists()
