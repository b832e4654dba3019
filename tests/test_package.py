"""The package's own names: all there, imported when used, and torch not before."""

import ast
import sys
from pathlib import Path
from types import ModuleType

import pytest

import bounded
import infoform


@pytest.mark.parametrize("name", infoform.__all__)
def test_every_public_name_is_there_and_no_module(name: str) -> None:
    assert name in dir(infoform)
    assert not isinstance(getattr(infoform, name), ModuleType)


def test_names_for_type_checkers_are_those_that_are_imported_when_used() -> None:
    tree = ast.parse(Path(infoform.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert {f"infoform.{home}": {*names} for home, names in infoform._HOMES.items()} == {
        node.module: {alias.name for alias in node.names} for node in imports
    }


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lapalce'"):
        getattr(infoform, "lapalce")  # noqa: B009


def _in_a_fresh_process(code: str) -> str:
    return bounded.run([sys.executable, "-c", code], check=True).stdout.strip()


def test_importing_the_package_and_the_command_does_not_import_torch() -> None:
    code = "import sys, infoform, infoform.cli; print([m for m in ('torch', 'numpy', 'pandas') if m in sys.modules])"
    assert _in_a_fresh_process(code) == "[]"


def test_functions_keep_their_names_once_their_files_are_imported() -> None:
    code = (
        "import infoform.planner, infoform.acquisition; from infoform.planner import plan; import infoform; "
        "print(callable(infoform.plan), callable(infoform.acquire))"
    )
    assert _in_a_fresh_process(code) == "True True"


def test_using_the_package_imports_nothing_heavy_but_torch() -> None:
    heavy: tuple[str, ...] = (
        "sklearn",
        "scipy",
        "pandas",
        "matplotlib",
        "torchmetrics",
        "optuna",
        "lightning",
        "transformers",
        "jax",
    )
    heavy += ("plotly", "PIL", "pyarrow", "numpyro", "torchvision", "IPython")
    code = (
        "import sys, torch; before = set(sys.modules); "
        "import infoform; [getattr(infoform, name) for name in infoform.__all__]; "
        f"print([m for m in {heavy} if m in sys.modules and m not in before])"
    )
    assert _in_a_fresh_process(code) == "[]"
