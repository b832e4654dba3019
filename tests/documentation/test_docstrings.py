"""Docstrings of public names: every argument is explained, what is returned is said, and the example runs."""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import infoform
from infoform import baselines, layers, likelihoods, metrics

SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Example):$", flags=re.MULTILINE)
ENTRY = re.compile(r"^ {4}\*{0,2}(\w+)(?: \(.*\))?:", flags=re.MULTILINE)
FENCED = re.compile(r"^```python\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
NEEDS = {"infoform.baselines.HMC": "numpyro"}


def public() -> dict[str, Any]:
    """Return the public classes and functions, by name."""
    names = {f"infoform.{name}": getattr(infoform, name) for name in infoform.__all__}
    for module in (baselines, layers, likelihoods):
        names |= {f"{module.__name__}.{name}": getattr(module, name) for name in module.__all__}
    names |= {
        f"infoform.metrics.{name}": value
        for name, value in vars(metrics).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == "infoform.metrics"
    }
    first: dict[Any, str] = {}  # a name that two modules export is tested once
    for name, value in names.items():
        if inspect.isclass(value) or inspect.isroutine(value):
            first.setdefault(value, name)
    return {name: value for value, name in first.items()}


def sections(value: Any) -> dict[str, str]:
    """Return the sections of a docstring; its beginning is the section ""."""
    parts = SECTION.split(inspect.getdoc(value) or "")
    return {"": parts[0].strip(), **dict(zip(parts[1::2], parts[2::2], strict=True))}


def example(value: Any) -> str:
    """Return the code under "Example:": fenced, or as it stands."""
    text = textwrap.dedent(sections(value).get("Example", "").strip("\n"))
    return "\n".join(FENCED.findall(text)) if "```" in text else text


def parameters(value: Any) -> list[str]:
    return [name for name in inspect.signature(value).parameters if name not in ("self", "cls")]


def missing(value: Any, *, returns: bool) -> Iterator[str]:
    """Say what a function's docstring, or a class', does not have."""
    found = sections(value)
    if not found[""]:
        yield "a sentence"
    explained = {*ENTRY.findall(found.get("Args", ""))}
    yield from (f"Args: {name}" for name in parameters(value) if name not in explained)
    yield from (f"Args: {name}, which is no argument" for name in sorted(explained - {*parameters(value)}))
    annotation = inspect.signature(value).return_annotation
    if returns and annotation not in (None, "None", inspect.Signature.empty) and "Returns" not in found:
        yield "Returns"


def methods(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Give the public methods of a class that are written in infoform."""
    for name, value in inspect.getmembers(kind):
        function = inspect.unwrap(getattr(value, "__func__", value))
        if not name.startswith("_") and inspect.isfunction(function) and function.__module__.startswith("infoform"):
            yield name, value


def properties(kind: type) -> Iterator[tuple[str, property]]:
    yield from ((name, one) for name, one in inspect.getmembers(kind) if isinstance(one, property) and name[0] != "_")


def gaps(name: str, value: Any) -> list[str]:
    """Return all that is missing of a public name's documentation."""
    found = [] if example(value) else [f"{name}: Example"]
    found += [f"{name}: {gap}" for gap in missing(value, returns=inspect.isroutine(value))]
    if inspect.isclass(value):
        for key, method in methods(value):
            found += [f"{name}.{key}: {gap}" for gap in missing(method, returns=True)]
        found += [f"{name}.{key}: a sentence" for key, one in properties(value) if not inspect.getdoc(one)]
    return found


@pytest.mark.parametrize("name", sorted(public()))
def test_every_argument_of_a_public_name_is_explained(name: str) -> None:
    assert gaps(name, public()[name]) == []


def examples() -> dict[str, str]:
    """Return the examples of all public names and of their methods, by name."""
    found = {name: example(value) for name, value in public().items()}
    for name, value in public().items():
        if inspect.isclass(value):
            found |= {f"{name}.{key}": example(method) for key, method in methods(value)}
    return {name: code for name, code in found.items() if code}


def at_hand() -> dict[str, Any]:
    """Return the names that an example may use without saying where they come from."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    images, labels = torch.randn(40, 4), torch.randint(3, (40,))
    loader = list(zip(images.split(20), labels.split(20), strict=True))
    laplace = infoform.Laplace(model, "classification", fit_options=infoform.FitOptions(statistics="all"))
    laplace.fit(loader, progress=False).save("posterior.safetensors")
    loaders = dict.fromkeys(("train_loader", "val_loader", "test_loader"), loader)
    return {"infoform": infoform, "torch": torch, "model": model, "images": images, "laplace": laplace, **loaders}


@pytest.mark.filterwarnings("ignore:the best prior_precision")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.starts_jax if name in NEEDS else ()) for name in sorted(examples())],
)
def test_every_example_of_a_docstring_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    code = examples()[name]
    exec(compile(code, name, "exec"), {"__name__": "example", **at_hand()})  # our own docstrings


def test_there_are_public_names_of_every_kind() -> None:
    assert {"infoform.Laplace", "infoform.metrics.ece", "infoform.baselines.SWAG"} <= set(public())
