"""A missing package is named with the line that installs it, for every extra, in Python and on the command line."""

import re
import sys
from pathlib import Path

import pytest
import tomllib

import bounded
from infoform import integrations
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


# what is imported or called -> (module that is missing, extra)
NEEDED = {
    "import infoform.integrations.sklearn": ("sklearn", "sklearn"),
    "import infoform.integrations.lightning": ("lightning", "lightning"),
    "import infoform.integrations.hub": ("huggingface_hub", "hub"),
    "import infoform.integrations.mlflow": ("mlflow", "mlflow"),
    "import infoform.integrations.peft": ("peft", "peft"),
    "from infoform.integrations.tensorboard import reliability_figure as f; f(None, None)": (
        "matplotlib",
        "tensorboard",
    ),
    "from infoform.integrations.tables import to_pandas; to_pandas(None)": ("pandas", "tables"),
    "from infoform.baselines import HMC; HMC._train(None, None, [], None)": ("jax", "hmc"),
}


@pytest.mark.parametrize("code", NEEDED)
def test_whatever_needs_a_package_says_how_to_install_it(code: str) -> None:
    module, extra = NEEDED[code]
    done = bounded.run([sys.executable, "-c", f"import sys; sys.modules['{module}'] = None; {code}"])
    last = done.stderr.splitlines()[-1]
    assert last.endswith(f"which is not installed: pip install 'infoform[{extra}]'.")
    assert last.startswith("ModuleNotFoundError: ")
    assert " need" in last


def test_every_integration_is_covered() -> None:
    package = Path(integrations.__file__).parent
    using = {path.stem for path in package.glob("*.py") if "needed_by(" in path.read_text()}
    assert using == {code.split("integrations.")[1].split()[0].rstrip(";") for code in NEEDED if "integrations" in code}
