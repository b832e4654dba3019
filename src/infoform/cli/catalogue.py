"""The experiments of the paper, found by the name of their module when a verb asks for them.

`infoform.experiments` stands on everything else in the package, and nothing in the package may stand on it: an import
here would tie the command to the experiments, and an installation that leaves them out could not even show its help.
So the command looks them up at run time, as it does with other things that may not be there.
"""

from importlib import import_module
from typing import Any

MODULE = "infoform.experiments"


def experiment_names() -> list[str]:
    """Return the names of all experiments."""
    return list(import_module(MODULE).EXPERIMENTS)


def find_experiment(name: str) -> Any:
    """Return the experiment of this name; None where there is none."""
    return import_module(MODULE).get_experiment(name) if name in experiment_names() else None


def experiment_runner() -> Any:
    """Return the module that runs experiments: `reproduce`, `result_path`."""
    return import_module(f"{MODULE}.runner")


def experiment_pages() -> Any:
    """Return the module that writes the pages of experiments: `write_page`, `read_notes`."""
    return import_module(f"{MODULE}.page")
