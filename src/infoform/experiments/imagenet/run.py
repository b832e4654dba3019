"""The work on one trained ImageNet network: its pictures, its fit, its predictions and what they are worth."""

import time
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import infoform
from infoform.baselines import SWAG
from infoform.comparing.bootstrap import gain, resampled_scores
from infoform.comparing.measures import CLASSES
from infoform.data import imagenet, paintings
from infoform.experiments.base import Settings, choosing_pieces
from infoform.experiments.classification.measures import measures
from infoform.experiments.imagenet.networks import NETWORKS, in_precision
from infoform.experiments.imagenet.sampling import picture_batches, plain_outputs, sampled_outputs
from infoform.experiments.method import Method
from infoform.experiments.networks.training import Shuffled
from infoform.likelihoods import get_likelihood
from infoform.metrics import ood
from infoform.prediction import Prediction
from infoform.priors import get_prior
from infoform.tuning.losses import Answers
from infoform.tuning.temperature import best_temperature

SEARCHED = (
    "inf activation mc search",
    "diag isotropic mc search",
    "kfac isotropic mc search",
    "inf-paper isotropic mc search",
    "inf isotropic mc search",
    "efb-paper isotropic mc search",
)
LAST_LAYER = "last-layer"  # the only posterior here with a temperature, and with the novelty of inputs
UNSEARCHED = (
    "inf activation mc validation",
    "inf activation linear-mc validation",
    "inf activation mc evidence",
    "kfac isotropic mc evidence",
)
BATCH = 8  # pictures
FALSE_ALARMS = 0.05
HELD_OUT = 5  # every fifth image of the first ones
PRECISIONS, TRIALS, EXACT_TRIALS = (1e-6, 1e8), 57, 4  # of τ alone: quarter decades
RESAMPLES = 2000  # of the test pictures, for intervals
WORST = 1e12  # in place of a score that is not finite: JSON has no infinity


@dataclass(frozen=True)
class ImageNetSettings(Settings):
    """Sizes of a run."""

    network: str = "mobilenet"
    images: int = 1000  # classes of which the first image is for fit and tuning
    test: int = 1000  # classes of which the second image is for testing
    unknown: int = 500  # paintings
    samples: int = 30  # networks of a prediction by `mc`
    linear_samples: int = 5  # by `linear-mc`, each of which costs three times as much
    methods: tuple[str, ...] = choosing_pieces((LAST_LAYER, *SEARCHED, *UNSEARCHED, "swag"))  # keys
    statistics: str = "all"  # "needed": those of `inf` and `diag` alone
    search: str = "halving"  # how pairs (N, τ) are searched, as in `Laplace.tune`
    pairs: int = 100
    pair_samples: int = 5  # networks of a pair that meets all held-out images
    tuning_samples: int = 3  # for τ alone
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
    def lowered(self) -> nn.Module:
        """The network in the precision of sampled ones."""
        return self.model if self.settings.autocast is None else in_precision(self.model, self.settings.autocast)

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

    def laplace(self, *, fresh: bool = False, lowered: bool = False) -> infoform.Laplace:
        """Return the fit of this network, from the cache where it is there; it serves all structures."""
        s = self.settings
        path = self.cache / f"imagenet-{s.network}-{s.images}x{s.size}-{s.statistics}.safetensors"
        if path.exists() and not fresh:
            return infoform.load(path, self.lowered if lowered else self.model)
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
        return infoform.load(path, self.lowered) if lowered else laplace

    def plain_piece(self) -> dict[str, Any]:
        """Return the measures of the network, and under "autocast" those in the precision of sampled ones."""
        found = self._single(self.model)
        if self.settings.autocast is not None:
            found["autocast"] = self._single(self.lowered)
        return found

    def temperature_piece(self) -> dict[str, Any]:
        """Return the measures of the network with scaled logits, and the temperature."""
        temperature = self._best_temperature()
        return {**self._single(self.model, temperature), "temperature": temperature}

    def last_layer_piece(self) -> dict[str, Any]:
        """Return the measures of a posterior of the last layer with a temperature, and of novelty, from one pass."""
        s = self.settings
        laplace = infoform.Laplace(
            self.model,
            "classification",
            layers="last",
            structure=infoform.Inf(rank=s.rank),
            prior=infoform.Activation(rank=s.prior_rank),
            seed=s.seed,
        )
        begun = time.process_time()
        laplace.fit(picture_batches(*self.pictures.fit), progress=False)
        fitted = time.process_time()
        laplace.tune(picture_batches(*self.pictures.held_out), num_data=s.training_images, progress=False)
        tuned = time.process_time()
        test, classes = self.pictures.test
        known, unknown = (
            laplace.predict_loader(list(x.split(BATCH)), progress=False)[0] for x in (test, self.pictures.unknown)
        )
        assert known.novelty is not None
        assert unknown.novelty is not None
        seconds = {"fit": fitted - begun, "tune": tuned - fitted, "predict": time.process_time() - tuned}
        return {
            **measures(known, classes, unknown),
            "prior_precision": laplace.prior_precision,
            "num_data": laplace.num_data,
            "temperature": laplace.temperature,
            "note": laplace.tuning_note,
            "auroc_novelty": ood(known.novelty.double(), unknown.novelty.double())["auroc"],
            "false_alarms": float(known.novel(false_alarms=FALSE_ALARMS).double().mean()),
            "to_temperature": self._to_temperature(known, classes),
            "cpu_seconds": seconds,
        }

    def _to_temperature(self, known: Prediction, classes: Tensor) -> list[float]:
        """Return by how much the NLL is above that of temperature scaling, and the ends of its 95 % interval."""
        temperature = self._best_temperature()
        scaled = self._prediction(plain_outputs(self.model, self.pictures.test[0])[None] / temperature)
        nll, how = CLASSES["nll"], {"resamples": RESAMPLES, "seed": self.settings.seed}
        terms = [nll.terms(Answers.of(one), classes) for one in (known, scaled)]
        own, other = (resampled_scores(nll, one, **how) for one in terms)
        told = gain(float(terms[0].mean()), own, float(terms[1].mean()), other)
        return [told.mean, told.low, told.high]

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
        linear = method.kind == "linear-mc"  # always in float32: small differences matter there
        s, laplace = self.settings, self.laplace(lowered=not linear)
        begun = time.process_time()
        tried = self._tune(laplace, method)
        tuned = time.process_time()
        posterior, samples = laplace.posterior(), s.linear_samples if linear else s.samples
        test, classes = self.pictures.test
        drawn = [
            sampled_outputs(laplace, posterior, x, samples=samples, seed=s.seed, linear=linear)
            for x in (test, self.pictures.unknown)
        ]
        lost = sum(int((~one.isfinite()).any(-1).sum()) for one in drawn) / sum(len(one[0]) * samples for one in drawn)
        known, unknown = (self._prediction(one) for one in drawn)
        facts = {
            "prior_precision": laplace.prior_precision,
            "num_data": laplace.num_data,
            "tried": tried,
            "not_finite": lost,
            "cpu_seconds": {"tune": tuned - begun, "predict": time.process_time() - tuned},
        }
        return {**measures(known, classes, unknown), **facts}

    def _tune(self, laplace: infoform.Laplace, method: Method) -> list[list[float]]:
        """Choose N and τ, or τ; return what was tried on held-out images: [round, N, τ, NLL] or [τ, NLL]."""
        s = self.settings
        options: dict[str, Any] = {"structure": method.name, "prior": get_prior(str(method.prior))}
        alone: dict[str, Any] = {"num_data": s.training_images, "prior_precision": PRECISIONS}
        if method.tuning == "evidence":
            laplace.tune(**options, **alone)
            return []
        if method.tuning == "search":
            options |= {"method": s.search, "trials": s.pairs, "samples": s.pair_samples}
            options |= {"num_data": s.num_data, "prior_precision": s.prior_precision}
        else:
            options |= {"trials": TRIALS, "exact_trials": EXACT_TRIALS, "samples": s.tuning_samples, **alone}
        with warnings.catch_warnings():  # where no posterior is better than none, the best is at an end
            warnings.filterwarnings("ignore", message="the best prior_precision")
            held_out = picture_batches(*self.pictures.held_out)
            options |= {"kind": method.kind, "temperature": False, "standard_errors": 0}
            laplace.tune(held_out, **options, progress=False)
        trials = [(min(trial.scores["nll"], WORST), trial) for trial in laplace.trials]
        if method.tuning == "validation":
            return [[trial.prior_precision, score] for score, trial in trials]
        seen = [trial.examples or len(self.pictures.held_out[1]) for _, trial in trials]
        rounds = [float(sorted(set(seen)).index(one)) for one in seen]
        return [
            [number, trial.num_data, trial.prior_precision, score]
            for number, (score, trial) in zip(rounds, trials, strict=True)
        ]

    def _best_temperature(self) -> float:
        x, y = self.pictures.held_out
        logits = plain_outputs(self.model, x).double()
        return best_temperature(lambda value: float(functional.cross_entropy(logits / value, y)))

    def _single(self, network: nn.Module, temperature: float = 1.0) -> dict[str, Any]:
        test, classes = self.pictures.test
        found = [plain_outputs(network, x) / temperature for x in (test, self.pictures.unknown)]
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
