"""What is measured: a method is a generator that names each part of its work when that part is done.

A plain gradient pass, the unit of all; our structures; peers.py adds the peers.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.common import laplace_of
from torch import nn
from torch.nn import functional

from .networks import Batches

Run = Callable[[nn.Module, Batches], Iterator[str]]  # names "fit", "posterior" and "sample" as each is finished

# One line each: a name, and what infoform.Laplace is told besides model and likelihood.
OURS: dict[str, dict[str, Any]] = {
    "diag": {"structure": "diag"},
    "kfac": {"structure": "kfac"},
    "efb": {"structure": "efb"},
    "inf": {"structure": "inf", "rank": 100},
    "inf isotropic": {"structure": "inf", "rank": 100, "prior": "isotropic"},
    "inf of all": {"structure": "inf", "rank": 100, "basis_floor": 0.0},
    "inf quarter": {"structure": "inf", "rank": 100, "prior": "isotropic", "basis_data": 0.25},
    "inf-paper": {"structure": "inf-paper", "rank": 100},
}


@dataclass(frozen=True)
class Method:
    """A way to measure curvature, from this library or another."""

    library: str
    structure: str  # what it is to be compared with
    call: str  # how it is called, for the page
    run: Run
    prepare: Callable[[nn.Module], nn.Module] = lambda model: model  # not timed
    needs: tuple[str, ...] = ()  # modules that must be there
    only: tuple[str, ...] | None = None  # networks that it can do at all


def plain_pass(model: nn.Module, batches: Batches) -> Iterator[str]:
    """Take the gradient of the mean cross-entropy by all weights, batch by batch."""
    for inputs, labels in batches:
        model.zero_grad(set_to_none=True)
        functional.cross_entropy(model(inputs), labels).backward()
    model.zero_grad(set_to_none=True)
    yield "fit"


def fit_ours(options: Mapping[str, Any]) -> Run:
    def run(model: nn.Module, batches: Batches) -> Iterator[str]:
        laplace = laplace_of(model, "classification", **options).fit(batches, progress=False)
        yield "fit"
        posterior = laplace.posterior()
        yield "posterior"
        posterior.sample(1)
        yield "sample"

    return run


def _written(options: Mapping[str, Any]) -> str:
    given = ", ".join(f"{name}={value!r}" for name, value in options.items())
    return f'`infoform.Laplace(model, "classification", {given}).fit(batches)`, `.posterior()`, `.sample(1)`'


PLAIN = Method("torch", "plain", "forward and backward of the mean cross-entropy, all weights", plain_pass)
METHODS = {
    name: Method("infoform", options["structure"], _written(options), fit_ours(options))
    for name, options in OURS.items()
}
