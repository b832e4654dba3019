"""infoform as a worker asks it: whichever version is imported."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from benchmarks.answers.cases import Case
from benchmarks.answers.quality import Parts, plain_logits, save_answers
from benchmarks.answers.temperature import best_temperature
from torch import Tensor, nn

import infoform

PRECISION = 1000.0  # τ while speed is measured, which does not depend on it
PER_SAMPLE = 20  # sampled networks of `linear-mc`, whose time is told for one of them
Batches = list[tuple[Tensor, Tensor]]


class Ours:
    """A network with infoform's posteriors of all layers and of the last one, each fitted when first asked for."""

    def __init__(self, case: Case, model: nn.Module, inputs: Tensor, labels: Tensor, parts: Parts | None) -> None:
        self.case, self.model, self.inputs, self.labels, self.parts = case, model, inputs, labels, parts

    @cached_property
    def all_layers(self) -> infoform.Laplace:
        return self._fitted(infoform.Laplace(self.model, "classification"))

    @cached_property
    def last_layer(self) -> infoform.Laplace:
        return self._fitted(self._last())

    def way(self, name: str) -> Callable[[Tensor], Any]:
        """Return what predicts in this way."""
        if name == "temperature":
            return lambda x: (self.model(x) / 1.5).softmax(1)
        if name == "last":
            laplace = self.last_layer
            return lambda x: laplace.predict(x)
        laplace = self.all_layers
        if name == "linear-mc":
            return lambda x: laplace.predict(x, kind="linear-mc", samples=PER_SAMPLE)
        kind, samples = ("mc", int(name[2:])) if name.startswith("mc") else (name, 100)
        return lambda x: laplace.predict(x, kind=kind, samples=samples)

    def tuning(self, kind: str, batches: Batches, options: dict[str, Any]) -> tuple[Callable[[], Any], ...]:
        """Return the prediction of validation data, and the tuning with them."""
        if kind == "temperature":
            with torch.no_grad():
                return (
                    lambda: plain_logits(self.model, batches),
                    lambda: best_temperature(*plain_logits(self.model, batches)),
                )
        laplace = self.last_layer if kind == "last" else self.all_layers
        how = {"kind": "linear" if kind == "last" else kind, "progress": False, **options}
        laplace.prior_precision = PRECISION
        return lambda: laplace.predict_loader(batches, **how), lambda: laplace.tune(batches, **how)

    def quality(self, row: str, to: Path) -> dict[str, Any]:
        """Tune as the row says, keep the probabilities of known and unknown pictures, and tell what was found."""
        assert self.parts is not None
        parts = self.parts
        if row in ("plain", "temperature"):
            logits = plain_logits(self.model, parts.validation)
            temperature = best_temperature(*logits) if row == "temperature" else 1.0
            save_answers(to, lambda x: (self.model(x) / temperature).softmax(1), parts)
            return {"temperature": temperature}
        layers, searched = row.split()
        laplace = self._last() if layers == "last" else infoform.Laplace(self.model, "classification")
        laplace.fit(parts.curvature, progress=False)
        laplace.tune(parts.validation, temperature=searched == "tau+T", progress=False)
        save_answers(to, lambda x: laplace.predict(x).probs, parts)
        found = {"prior_precision": laplace.prior_precision, "temperature": laplace.temperature}
        return {**found, "note": laplace.tuning_note}

    def _last(self) -> infoform.Laplace:
        try:
            return infoform.Laplace(self.model, "classification", layers="last")
        except TypeError:  # a version that takes lists of names only
            return infoform.Laplace(self.model, "classification", layers=[self.case.last])

    def _fitted(self, laplace: infoform.Laplace) -> infoform.Laplace:
        count = self.case.fitted
        laplace.fit(
            list(zip(self.inputs[:count].split(64), self.labels[:count].split(64), strict=True)), progress=False
        )
        laplace.prior_precision = PRECISION
        return laplace
