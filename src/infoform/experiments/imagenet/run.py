"""The work on one trained ImageNet network: its pictures, its fit, its predictions and what they are worth."""

import time
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import infoform
from infoform.baselines import SWAG
from infoform.data import imagenet, paintings
from infoform.data.images import spaced
from infoform.experiments.base import Settings, choosing_pieces
from infoform.experiments.classification.measures import measures
from infoform.experiments.imagenet.networks import NETWORKS
from infoform.experiments.imagenet.sampling import plain_outputs, sampled_outputs
from infoform.experiments.method import Method
from infoform.experiments.networks.training import Shuffled
from infoform.experiments.search.halving import Round, halve, random_pairs
from infoform.experiments.search.line_search import find_least_nll, find_minimum
from infoform.experiments.search.temperature import find_temperature
from infoform.likelihoods import get_likelihood
from infoform.metrics import nll
from infoform.prediction import Prediction
from infoform.priors import get_prior

SEARCHED = (
    "inf activation mc search",
    "diag isotropic mc search",
    "kfac isotropic mc search",
    "inf-paper isotropic mc search",
    "inf isotropic mc search",
    "efb-paper isotropic mc search",
)
UNSEARCHED = (
    "inf activation mc validation",
    "inf activation linear-mc validation",
    "inf activation mc evidence",
    "kfac isotropic mc evidence",
)
HELD_OUT = 5  # every fifth image of the first ones


@dataclass(frozen=True)
class ImageNetSettings(Settings):
    """Sizes of a run."""

    network: str = "mobilenet"
    images: int = 1000  # classes of which the first image is for fit and tuning
    test: int = 1000  # classes of which the second image is for testing
    unknown: int = 500  # paintings
    samples: int = 30  # networks of a prediction by `mc`
    linear_samples: int = 5  # by `linear-mc`, each of which costs three times as much
    methods: tuple[str, ...] = choosing_pieces((*SEARCHED, *UNSEARCHED, "swag"))  # keys
    statistics: str = "all"  # "needed": those of `inf` and `diag` alone
    rounds: tuple[tuple[int, int, int], ...] = ((100, 20, 1), (20, 50, 2), (5, 200, 5))  # pairs, images, samples
    tuning_images: int = 100  # for τ alone
    tuning_samples: int = 3
    num_data: tuple[float, float] = (1e4, 1e8)  # bounds of the search
    prior_precision: tuple[float, float] = (1e-2, 1e8)
    training_images: float = 1_281_167.0
    rank: int = 100
    prior_rank: int = 8
    size: int = 224  # pixels
    swag_epochs: int = 4
    swag_learning_rate: float = 1e-4
    autocast: str | None = None  # precision of sampled networks' products, if not float32


@dataclass(frozen=True)
class Pictures:
    """Pixels for fit, tuning and test, with their classes, and those of paintings."""

    fit: tuple[Tensor, Tensor]
    held_out: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    unknown: Tensor


@dataclass(frozen=True)
class Run:
    """The work on one network of a run; what a piece uses several times is read once."""

    settings: ImageNetSettings
    cache: Path

    @cached_property
    def model(self) -> nn.Module:
        network = NETWORKS[self.settings.network].load()
        return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    @cached_property
    def pictures(self) -> Pictures:
        about, size = NETWORKS[self.settings.network], self.settings.size
        first = imagenet.load(0, classes=self.settings.images, size=size)
        second = imagenet.load(1, classes=self.settings.test, size=size)
        x, held = about.scaled(first.pixels), torch.arange(len(first)) % HELD_OUT == HELD_OUT - 1
        return Pictures(
            (x[~held], first.labels[~held]),
            (x[held], first.labels[held]),
            (about.scaled(second.pixels), second.labels),
            about.scaled(paintings.load(count=self.settings.unknown, size=size)),
        )

    def fit_piece(self) -> dict[str, Any]:
        """Fit anew, and tell what the network and its posteriors are."""
        begun = time.process_time()
        laplace = self.laplace(fresh=True)
        seconds = time.process_time() - begun
        methods = [method for method in map(Method.parse, self.settings.methods) if method.is_laplace]
        stored = {f"{m.name} {m.prior}": laplace.posterior(structure=m.name, prior=m.prior).nbytes for m in methods}
        clipped = self._clipped(laplace) if any(method.name == "inf-paper" for method in methods) else None
        held_x, held_y = self.pictures.held_out
        right = (plain_outputs(self.model, held_x).argmax(1) == held_y).double().mean()
        return {
            "fit_cpu_seconds": seconds,
            "fit_images": len(self.pictures.fit[1]),
            "held_out_images": len(held_y),
            "held_out_accuracy": float(right),
            "weights": sum(parameter.numel() for parameter in self.model.parameters()),
            "covered": sum(layer.mean.numel() for layer in laplace.layers.values()),
            "bytes": stored,
            "clipped": clipped,
        }

    def laplace(self, *, fresh: bool = False) -> infoform.Laplace:
        """Return the fit of this network, from the cache where it is there; it serves all structures."""
        s = self.settings
        path = self.cache / f"imagenet-{s.network}-{s.images}x{s.size}-{s.statistics}.safetensors"
        if path.exists() and not fresh:
            return infoform.load(path, self.model)
        laplace = infoform.Laplace(
            self.model,
            "classification",
            structure=infoform.Inf(rank=s.rank),
            prior=infoform.Activation(rank=s.prior_rank),
            fit_options=infoform.FitOptions(statistics=s.statistics, block_limit=1),  # no exact blocks
            seed=s.seed,
        )
        x, y = self.pictures.fit
        laplace.fit(list(zip(x.split(8), y.split(8), strict=True)), progress=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        laplace.save(path, curvature=True)
        return laplace

    def plain_piece(self) -> dict[str, Any]:
        """Return the measures of the network, and under "autocast" those in the precision of sampled ones."""
        found = self._single(1.0)
        if self.settings.autocast is not None:
            found["autocast"] = self._single(1.0, autocast=self.settings.autocast)
        return found

    def temperature_piece(self) -> dict[str, Any]:
        """Return the measures of the network with scaled logits, and the temperature."""
        x, y = self.pictures.held_out
        temperature = find_temperature(plain_outputs(self.model, x), y)
        return {**self._single(temperature), "temperature": temperature}

    def swag_piece(self) -> dict[str, Any]:
        """Fine-tune on the few images of the fit; return the measures of SWAG, and under "swa" those of its mean."""
        s = self.settings
        loader = Shuffled(*self.pictures.fit, batch_size=32)
        swag = SWAG(
            self.model,
            "classification",
            epochs=s.swag_epochs,
            every=max(1, s.swag_epochs * len(loader) // 40),
            learning_rate=s.swag_learning_rate,
            batch_norm_batches=10,
        )
        swag.fit(loader, progress=False)

        def predict(x: Tensor) -> Prediction:
            return swag.predict_loader([x], samples=s.samples, progress=False)[0]

        test, classes = self.pictures.test
        known, unknown = predict(test), predict(self.pictures.unknown)
        mean = [
            get_likelihood("classification").from_samples(one.plain[None], one.plain, noise=None)
            for one in (known, unknown)
        ]
        return {**measures(known, classes, unknown), "swa": measures(mean[0], classes, mean[1])}

    def laplace_piece(self, method: Method) -> dict[str, Any]:
        """Return the measures of a tuned posterior, what it was tuned to, and what it cost."""
        s, laplace = self.settings, self.laplace()
        held_x, held_y = self.pictures.held_out
        linear, tuning = method.kind == "linear-mc", method.tuning
        prior = get_prior(str(method.prior)).tuned(by_evidence=tuning == "evidence")
        options: dict[str, Any] = {"structure": method.name, "prior": prior}

        def outputs(x: Tensor, count: float, tau: float, samples: int) -> Tensor:
            posterior = laplace.posterior(prior_precision=tau, num_data=count, **options)
            return sampled_outputs(
                laplace, posterior, x, samples=samples, seed=s.seed, linear=linear, autocast=s.autocast
            )

        def score(count: float, tau: float, one: Round) -> float:
            chosen = spaced(len(held_y), one.images)
            probs = outputs(held_x[chosen], count, tau, one.samples).softmax(-1).mean(0)
            return nll(probs, held_y[chosen]) if bool(probs.isfinite().all()) else float("inf")

        size = s.training_images
        begun = time.process_time()
        tried: list[list[float]]
        if tuning == "search":
            rounds = [Round(*one) for one in s.rounds]
            pairs = random_pairs(rounds[0].pairs, s.num_data, s.prior_precision, seed=s.seed)
            (size, tau), tried = halve(score, pairs, rounds)
        elif tuning == "validation":
            look = Round(1, s.tuning_images, s.tuning_samples)
            tau, tried = find_least_nll(lambda tau: score(size, tau, look), start=3)
        else:
            evidence = partial(laplace.log_evidence, num_data=size, **options)
            tau, tried = find_minimum(lambda tau: -evidence(prior_precision=tau), start=3)
        tuned = time.process_time()
        samples = s.linear_samples if linear else s.samples
        test, classes = self.pictures.test
        drawn = [outputs(x, size, tau, samples) for x in (test, self.pictures.unknown)]
        lost = sum(int((~one.isfinite()).any(-1).sum()) for one in drawn) / sum(len(one[0]) * samples for one in drawn)
        known, unknown = (self._prediction(one) for one in drawn)
        seconds = {"tune": tuned - begun, "predict": time.process_time() - tuned}
        facts = {"prior_precision": tau, "num_data": size, "tried": tried, "not_finite": lost, "cpu_seconds": seconds}
        return {**measures(known, classes, unknown), **facts}

    def _single(self, temperature: float, *, autocast: str | None = None) -> dict[str, Any]:
        test, classes = self.pictures.test
        pictures = (test, self.pictures.unknown)
        found = [plain_outputs(self.model, x, autocast=autocast) / temperature for x in pictures]
        known, unknown = (self._prediction(logits[None]) for logits in found)
        return measures(known, classes, unknown)

    def _prediction(self, drawn: Tensor) -> Prediction:  # (M, N, C)
        """Return the prediction of drawn outputs; those that are not finite hold all classes equally likely."""
        drawn = torch.where(drawn.isfinite().all(-1, keepdim=True), drawn, 0)
        return get_likelihood("classification").from_samples(drawn, drawn.mean(0), noise=None)

    def _clipped(self, laplace: infoform.Laplace) -> float:
        """Return for how many weights the paper's correction D is negative, and set to 0."""
        layers = laplace.posterior(structure="inf-paper", prior="isotropic").layers.values()
        cut = sum(int(layer.settings()["clipped"]) for layer in layers)
        return cut / sum(layer.shape[0] * layer.shape[1] for layer in layers)
