"""The work on one public ResNet: its fits, its predictions, and what they are worth."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import infoform
from infoform.baselines import SWAG
from infoform.common.tensor_file import write_tensors
from infoform.comparing.answers import Answered
from infoform.experiments.method import Method
from infoform.experiments.networks import cifar_resnets
from infoform.experiments.networks.training import Shuffled
from infoform.experiments.public_resnets.answered import TUNING, CrossFitted, Predict, crossfit, untuned
from infoform.experiments.public_resnets.joined import joined
from infoform.experiments.public_resnets.pictures import Batches, Pictures
from infoform.experiments.public_resnets.scores import scores
from infoform.experiments.public_resnets.settings import (
    CURVE,
    JOINED,
    LAST_LAYER,
    LAST_STAGE,
    NOVEL,
    TEMPERATURE,
    WITH_SPREAD,
    ResnetSettings,
)
from infoform.likelihoods import get_likelihood
from infoform.prediction import Prediction
from infoform.tuning.temperature import best_temperature

LAYERS: dict[str, Any] = {LAST_LAYER: "last", LAST_STAGE: ["layer3.*", "fc"]}
BY_THE_BEST_SCORE: dict[str, Any] = {"standard_errors": 0.0}  # NLL is what the aims are about


@dataclass(frozen=True)
class Run:
    """The work on one network of a run; what a piece uses several times is read once."""

    settings: ResnetSettings
    cache: Path
    depth: int

    @cached_property
    def model(self) -> nn.Module:
        return cifar_resnets.load(self.depth)

    @cached_property
    def pictures(self) -> Pictures:
        return Pictures(self.settings, self.cache)

    def piece(self, method: Method, found: CrossFitted, seconds: dict[str, float]) -> dict[str, Any]:
        """Keep a method's answers, and return its scores beside those of temperature scaling."""
        s, path = self.settings, self._answers_path(TEMPERATURE)
        found.save(self._answers_path(method.of_any_network.key))
        beside = CrossFitted.load(path) if path.exists() else None
        told = scores(found, self.pictures.test.labels, beside=beside, resamples=s.resamples, seed=s.seed)
        return {**told, "tuned": found.facts, "cpu_seconds": seconds}

    def plain_piece(self, method: Method) -> dict[str, Any]:
        """Return the scores of the network's own answers."""
        known, unknown = self._outputs()
        first = torch.ones(len(known), dtype=torch.bool)
        answers = {name: _answered(one) for name, one in unknown.items()}
        return self.piece(method, CrossFitted(_answered(known), first, answers, [{}]), {})

    def temperature_piece(self, method: Method) -> dict[str, Any]:
        """Return the scores of the network with scaled outputs."""
        known, unknown = self._outputs()
        targets, fold = self.pictures.test.labels, self.pictures.fold
        scale, facts = torch.ones(len(known), 1), []
        for number, other in (TUNING, TUNING[::-1]):
            own = fold == number
            found = best_temperature(partial(_cross_entropy, known[own], targets[own]))
            scale[fold != number if number == TUNING[0] else fold == other] = found
            facts.append({"temperature": found, "nll": _cross_entropy(known[own], targets[own], found)})
        answers = {name: _answered(one / facts[0]["temperature"]) for name, one in unknown.items()}
        return self.piece(method, CrossFitted(_answered(known / scale), fold != TUNING[0], answers, facts), {})

    def laplace_piece(self, method: Method) -> dict[str, Any]:
        """Return the scores of a posterior, what it was tuned to, and what it cost."""
        s, begun = self.settings, time.process_time()
        laplace = self.fit(method)
        fitted = time.process_time()
        options: dict[str, Any] = {"prior": method.prior}
        if method.name not in LAYERS:
            options["structure"] = laplace.settings.resolve(method.name)
        kind, draws = str(method.kind), s.samples if method.kind == "mc" else 100
        seconds = {"fit": fitted - begun, "tune": 0.0}

        def predict(x: Tensor) -> Prediction:
            return laplace.predict(x, kind=kind, samples=draws)

        def tune(validation: Batches) -> tuple[Predict, dict[str, Any]]:
            before = time.process_time()
            with warnings.catch_warnings():  # a row whose best τ is at an end says so by its τ
                warnings.filterwarnings("ignore", message="the best prior_precision")
                laplace.tune(
                    validation,
                    kind=kind,
                    samples=draws,
                    trials=s.trials,
                    progress=False,
                    **options,
                    **BY_THE_BEST_SCORE,
                )
            seconds["tune"] += time.process_time() - before
            return predict, self._facts(laplace)

        slow = method.of_any_network.key != NOVEL
        if method.tuning == "evidence":
            laplace.tune(**options)
            seconds["tune"] = time.process_time() - fitted
            laplace.calibrate_novelty(
                self.pictures.batches(self.pictures.test[self.pictures.fold == 0]), progress=False
            )
            found = untuned(self.pictures, predict, has_spread=True, slow=slow, facts=self._facts(laplace))
            found = replace(found, first=self.pictures.fold != 0)  # where novelty has not seen the pictures
        else:
            found = crossfit(self.pictures, tune, has_spread=True, slow=slow)
        seconds["predict"] = time.process_time() - fitted - seconds["tune"]
        facts = {"bytes": laplace.posterior().nbytes, "fitted": self._fitted(method)}
        return {**self.piece(method, found, seconds), **facts}

    def fit(self, method: Method, count: int | None = None) -> infoform.Laplace:
        """Return the fit that a method needs, from the cache where it is there."""
        s = self.settings
        count = self._fitted(method) if count is None else count
        alone = method.name in ("inf", *LAYERS)
        stem = method.name if alone else "all"
        path = self.cache / f"cifar10-resnet{self.depth}-{stem}-{count}.safetensors"
        if path.exists():
            return infoform.load(path, self.model)
        options = infoform.FitOptions(block_limit=1, statistics="needed" if alone else "all")
        laplace = infoform.Laplace(
            self.model,
            "classification",
            structure=infoform.Inf(rank=s.rank),
            layers=LAYERS.get(method.name),
            fit_options=options,
            seed=s.seed,
        )
        laplace.fit(self.pictures.train(count), progress=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        laplace.save(path, curvature=True)
        return laplace

    def curve_piece(self) -> dict[str, Any]:
        """Return the NLL by the number of training pictures, on the fold that tunes: one half tunes for the other."""
        s, pictures = self.settings, self.pictures
        images = pictures.test[pictures.fold == 0]
        halves = [pictures.batches(images[torch.arange(len(images)) % 2 == half]) for half in (0, 1)]
        told = {}
        for count in s.curve:
            begun = time.process_time()
            laplace = self.fit(Method.parse(LAST_STAGE), count)
            seconds, nll = time.process_time() - begun, 0.0
            for own, other in (halves, halves[::-1]):
                laplace.tune(own, kind="linear", trials=s.trials, progress=False, **BY_THE_BEST_SCORE)
                known, targets = laplace.predict_loader(other, kind="linear", progress=False)
                assert targets is not None
                nll += infoform.metrics.nll(known.value, targets) / 2
            told[str(count)] = {"nll": nll, "fit_cpu_seconds": seconds}
        return {"curve": told, "pictures": len(images)}

    def joined_piece(self) -> dict[str, Any]:
        """Return what the spread of the answers adds to novelty, by method and set."""
        s, told = self.settings, {}
        for key in WITH_SPREAD:
            if f"{key} {self.depth}" in s.methods:
                found = CrossFitted.load(self._answers_path(key))
                told[key] = joined(found, resamples=s.resamples, seed=s.seed)
        return {"joined": told}

    def swag_piece(self, method: Method) -> dict[str, Any]:
        """Fine-tune for some epochs, and return the scores of SWAG's networks, without a temperature."""
        s, begun = self.settings, time.process_time()
        batches = self.pictures.train(s.swag_pictures)
        images, labels = (torch.cat(one) for one in zip(*batches, strict=True))
        loader = Shuffled(images, labels, batch_size=128)
        swag = SWAG(
            self.model,
            "classification",
            epochs=s.swag_epochs,
            every=max(1, len(loader) * s.swag_epochs // 20),
            learning_rate=s.swag_learning_rate,
            weight_decay=5e-4,
            batch_norm_batches=20,
            seed=s.seed,
        )
        swag.fit(loader, progress=False)
        fitted = time.process_time()
        found = untuned(
            self.pictures, lambda x: swag.predict(x, samples=s.samples), has_spread=True, slow=True, facts={}
        )
        return self.piece(method, found, {"fit": fitted - begun, "predict": time.process_time() - fitted})

    def peer_piece(self, method: Method) -> dict[str, Any]:
        """Return the scores of laplace-torch's Kronecker posterior, by its linearised probit prediction."""
        from infoform.experiments.public_resnets.peer import Peer

        begun = time.process_time()
        s = self.settings
        train = self.pictures.train(s.curvature_all)
        peer = Peer.fit(method.name, self.model, train, samples=s.samples)
        fitted = time.process_time()
        slow = method.name != "laplace-torch-last"
        found = crossfit(self.pictures, peer.tune, has_spread=True, slow=slow)
        seconds = {"fit": fitted - begun, "tune and predict": time.process_time() - fitted}
        return self.piece(method, found, seconds)

    def _fitted(self, method: Method) -> int:
        return self.settings.curvature if method.name in ("inf", *LAYERS) else self.settings.curvature_all

    def _answers_path(self, key: str) -> Path:
        return self.cache / "cifar10-resnet-answers" / f"{key.replace(' ', '-')}-{self.depth}.safetensors"

    def _outputs(self) -> tuple[Tensor, dict[str, Tensor]]:  # (N, C), (M, C) by set
        """Return the network's outputs for all test pictures and all unknown ones, from the cache where they are."""
        path = self.cache / f"cifar10-resnet{self.depth}-outputs.safetensors"
        if not path.exists():
            sets = {"": [x for x, _ in self.pictures.batches(self.pictures.test)], **self.pictures.unknown()}
            with torch.no_grad():
                outputs = {name or "known": torch.cat([self.model(x) for x in one]) for name, one in sets.items()}
            path.parent.mkdir(parents=True, exist_ok=True)
            write_tensors(path, outputs)
        found = load_file(path)
        return found.pop("known"), found

    @staticmethod
    def _facts(laplace: infoform.Laplace) -> dict[str, Any]:
        best = min((trial.scores["nll"] for trial in laplace.trials), default=None)
        plain = laplace.plain_trial
        return {
            "prior_precision": laplace.prior_precision,
            "temperature": laplace.temperature,
            "nll": best,
            "temperature_nll": None if plain is None else plain.scores["nll"],
        }


def pieces_of(run: Run) -> dict[str, Callable[[Method], dict[str, Any]]]:
    """Return what does the pieces that are no posterior of ours, by name."""
    return {
        "plain": run.plain_piece,
        TEMPERATURE: run.temperature_piece,
        "swag": run.swag_piece,
        CURVE: lambda _: run.curve_piece(),
        JOINED: lambda _: run.joined_piece(),
        "laplace-torch-last": run.peer_piece,
        "laplace-torch-all": run.peer_piece,
    }


def _answered(outputs: Tensor) -> Answered:  # (N, C)
    found = get_likelihood("classification").from_samples(outputs[None], outputs, noise=None)
    return Answered.of(found, has_spread=False)


def _cross_entropy(outputs: Tensor, targets: Tensor, temperature: float) -> float:
    return float(nn.functional.cross_entropy(outputs.double() / temperature, targets))
