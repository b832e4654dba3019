"""A missing package is named with the line that installs it, for every extra, in Python and on the command line."""

import re
import sys
from pathlib import Path

import pytest
import tomllib

import bounded
from infoform.cli.mistakes import sentence
from infoform.common.extras import EXTRAS, describe_missing

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_every_extra_is_one_of_the_project_and_holds_the_package() -> None:
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    for package, extra in EXTRAS.values():
        names = {re.split(r"[\[<>=]", one)[0].lower() for one in extras[extra]}
        assert package.lower() in names or package == "jax"  # numpyro brings jax


@pytest.mark.parametrize("name", ["pytorchcv", "sklearn.metrics", "scikit-learn"])
def test_a_missing_module_gets_its_install_line(name: str) -> None:
    said = sentence(ModuleNotFoundError(f"No module named '{name}'", name=name))
    assert said.startswith("this needs ")
    assert "which is not installed: pip install 'infoform[" in said
    assert describe_missing("mine") is None


@pytest.mark.parametrize(("module", "extra"), [("sklearn", "sklearn"), ("lightning", "lightning")])
def test_an_integration_says_what_it_needs(module: str, extra: str) -> None:
    code = f"import sys; sys.modules['{module}'] = None; import infoform.integrations.{module}"
    done = bounded.run([sys.executable, "-c", code])
    assert f"pip install 'infoform[{extra}]'" in done.stderr.splitlines()[-1]
