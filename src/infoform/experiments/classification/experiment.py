"""Known and unknown images, with one set of hyperparameters: what MNIST/notMNIST and CIFAR-10/SVHN share.

A piece is `network 0` (training), `curvature 0` (one fit, from which all structures are taken), or a method (method.py)
on one of the networks, say `inf activation:16x30 mc validation 0`: a prior whose strength is not said has a strength of
1. The structure `last-layer` is `inf` of the last layer alone. Tuning is by

validation   NLL of held-out training data (τ alone)
evidence     Laplace's evidence (τ alone, no data)
search       the paper's protocol: ECE of held-out data over pairs of N (1, all, twice all) and τ

All are `Laplace.tune`: by validation on quarter decades, by evidence between the same ends, for N the number of images
that the network was trained on.
"""

import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import infoform
from infoform.baselines import SWAG, Baseline, Ensemble, MCDropout
from infoform.data.images import Images, spaced
from infoform.experiments.base import Experiment, Settings, choosing_pieces
from infoform.experiments.classification.charts import draw
from infoform.experiments.classification.measures import complexity, measures, spectra
from infoform.experiments.classification.methods import WEAK_SAMPLED
from infoform.experiments.classification.page import body
from infoform.experiments.classification.targets import Target
from infoform.experiments.method import Method
from infoform.experiments.networks.training import Augment, Shuffled, Trained, Training, train
from infoform.priors import Activation
from infoform.records.study_result import Result

Data = tuple[Tensor, Tensor]  # images, classes
View = Callable[[Images], Tensor]  # pictures as a network takes them
LAST_LAYER = "last-layer"  # the name of a method: `inf` of the last layer alone
PRECISIONS, TRIALS = (1e-6, 1e8), 57  # of τ alone: quarter decades
SEARCHED_PRECISIONS = (1.0, 1e5)  # of the paper's search: its grid is even in log τ
EXACT_TRIALS = 8  # of them, at most: few sampled networks tell τ apart on all held-out data alone
GUESSES = 5  # times the least NLL: what is above tells of rounding more than of a posterior
BY_THE_BEST_SCORE: Mapping[str, Any] = {"temperature": False, "standard_errors": 0}  # of τ alone, as the paper chooses
MEASURED_BYTES = ("diag", "kfac", "efb-paper", "inf-paper", "inf")  # structures


@dataclass(frozen=True)
class ClassificationSettings(Settings):
    """Sizes of a run, and what is measured on its networks."""

    train: int = 30_000  # images, the first of the training part
    validation: int = 3_000  # images, the last of the training part
    curvature: int = 2_000  # images, the first of those trained on
    test: int = 3_000  # images, evenly spaced over the test part
    unknown: int = 1_500  # images, drawn at random
    networks: int = 3  # seeds 0, 1, ...; also the members of the ensemble
    epochs: int = 6
    batch_size: int = 128
    learning_rate: float = 1e-3
    l2: float = 1e-8
    cosine: bool = False  # a rate that falls to zero calibrates MNIST's network, and is not what the paper studies
    rank: int = 100
    prior_rank: int = 16
    samples: int = 20  # networks of a sampled prediction
    tuning_samples: int = 6
    swag_epochs: int = 1
    swag_snapshots: int = 20
    swag_learning_rate: float = 0.01
    search_trials: int = 18
    methods: tuple[str, ...] = choosing_pieces(())  # keys, for the first network
    repeated: tuple[str, ...] = choosing_pieces(())  # for the others


def quick_settings(baselines: Sequence[str]) -> ClassificationSettings:
    """Return the sizes of a quick look: two networks, two posteriors and these baselines."""
    return ClassificationSettings(
        train=1_000,
        validation=200,
        curvature=200,
        test=300,
        unknown=200,
        networks=2,
        epochs=2,
        samples=4,
        tuning_samples=3,
        swag_snapshots=4,
        search_trials=3,
        methods=(WEAK_SAMPLED, "kfac isotropic mc evidence", *baselines),
        repeated=(WEAK_SAMPLED,),
    )


def full_settings(methods: tuple[str, ...], **sizes: Any) -> ClassificationSettings:
    """Return settings with as many networks, samples and trials as the paper has, and all methods on every network."""
    return ClassificationSettings(
        test=10_000,
        networks=15,
        samples=100,
        tuning_samples=30,
        search_trials=300,
        methods=methods,
        repeated=methods,
        **sizes,
    )


@dataclass(frozen=True)
class Parts:
    """Scaled images, and how a batch of them is augmented in training."""

    train: Data
    validation: Data
    curvature: Data
    test: Data
    unknown: Tensor
    augment: Augment | None = None

    @classmethod
    def cut(
        cls,
        whole: Images,
        test: Images,
        unknown: Images,
        settings: ClassificationSettings,
        *,
        test_view: View,
        training_view: View | None = None,
        augment: Augment | None = None,
    ) -> "Parts":
        """Cut the parts of a run out of a data set's training and test part, and of another data set.

        Pictures are as `test_view` gives them, those of the training before they are augmented as `training_view` does.
        """

        def seen(images: Images, view: View = test_view) -> Data:
            return view(images), images.labels

        order = torch.randperm(len(unknown), generator=torch.Generator().manual_seed(settings.seed))
        return cls(
            train=seen(whole[: settings.train], training_view or test_view),
            validation=seen(whole[len(whole) - settings.validation :]),
            curvature=seen(whole[: settings.curvature]),
            test=seen(test[spaced(len(test), settings.test)]),
            unknown=test_view(unknown[order[: settings.unknown]]),
            augment=augment,
        )


class Classification(Experiment[ClassificationSettings]):
    """A network trained on known classes, and everything that predicts with it."""

    last_layer: str  # its name in the network
    paper: Mapping[str, tuple[float, float]]  # method -> published ECE, and entropy on unknown data
    targets: Sequence[Target]

    @abstractmethod
    def network(self) -> nn.Module:
        """Return the untrained network."""

    @abstractmethod
    def parts(self, settings: ClassificationSettings) -> Parts:
        """Read the data."""

    def pieces(self, settings: ClassificationSettings) -> Mapping[str, Sequence[str]]:
        networks = [Method("network", network=number).key for number in range(settings.networks)]
        needs: dict[str, Sequence[str]] = {}
        for number, network in enumerate(networks):
            curvature, plain = (Method(name, network=number).key for name in ("curvature", "plain"))
            needs |= {network: (), curvature: (network,), plain: (network,)}
            for key in settings.methods if number == 0 else settings.repeated:
                method = Method.parse(key).on(number)
                needs[method.key] = (network, curvature) if method.is_laplace else (network,)
        return {**needs, Method("ensemble", network=0).key: networks}

    def run_piece(self, key: str, settings: ClassificationSettings, *, cache: Path) -> dict[str, Any]:
        method = Method.parse(key)
        assert method.network is not None
        run = Run(self, settings, cache, method.network)
        table: dict[str, Callable[[], dict[str, Any]]] = {
            "network": run.network_piece,
            "curvature": run.curvature_piece,
            "plain": lambda: run.baseline_piece(Ensemble.of([run.trained(run.seed).network], "classification")),
            "ensemble": run.ensemble_piece,
            "mc-dropout": run.dropout_piece,
            "swag": run.swag_piece,
        }
        return run.laplace_piece(method) if method.is_laplace else table[method.name]()

    def page(self, result: Result) -> str:
        return body(self.name, result, paper=self.paper, targets=self.targets)

    def charts(self, result: Result, folder: Path) -> None:
        draw(self.name, result, folder)


@dataclass(frozen=True)
class Run:
    """The work on one network of a run; what a piece uses several times is read once."""

    experiment: Classification
    settings: ClassificationSettings
    cache: Path
    seed: int

    @cached_property
    def parts(self) -> Parts:
        return self.experiment.parts(self.settings)

    def trained(self, seed: int) -> Trained:
        """Return a network of this run, trained or read from the cache."""
        s = self.settings
        x, y = self.parts.train
        return train(
            self.experiment.network,
            x,
            y,
            training=Training(s.epochs, s.batch_size, s.learning_rate, s.l2, s.cosine),
            seed=seed,
            path=self.cache / f"{self.experiment.name}-{s.train}x{s.epochs}-{seed}.pt",
            augment=self.parts.augment,
        )

    def network_piece(self) -> dict[str, Any]:
        trained = self.trained(self.seed)
        x, y = self.parts.validation
        with torch.no_grad():
            right = sum(int((trained.network(a).argmax(1) == b).sum()) for a, b in batches((x, y)))
        weights = sum(parameter.numel() for parameter in trained.network.parameters())
        return {
            "losses": trained.losses,
            "training_seconds": trained.seconds,
            "validation_accuracy": right / len(x),
            "weights": weights,
        }

    def curvature_piece(self) -> dict[str, Any]:
        begun = time.perf_counter()
        laplace = self.laplace(fresh=True)
        seconds = time.perf_counter() - begun
        stored = {}
        for structure in MEASURED_BYTES:
            for prior in ("isotropic", "activation"):
                stored[f"{structure} {prior}"] = laplace.posterior(structure=structure, prior=prior).nbytes
        for storage in ("bfloat16", "uint8"):
            packed = laplace.posterior(structure="inf", prior="activation", storage=storage)
            stored[f"inf activation, {storage}"] = packed.nbytes
        return {
            "fit_seconds": seconds,
            "bytes": stored,
            "complexity": complexity(laplace.curvature, (self.settings.rank, 10 * self.settings.rank)),
            "spectra": spectra(laplace.curvature),
        }

    def laplace(self, *, fresh: bool = False) -> infoform.Laplace:
        """Return the fit of this network, from the cache where it is there; it serves all structures."""
        s, network = self.settings, self.trained(self.seed).network
        path = self.cache / f"{self.experiment.name}-{s.train}x{s.epochs}-{s.curvature}-{self.seed}.safetensors"
        if path.exists() and not fresh:
            return infoform.load(path, network)
        laplace = infoform.Laplace(
            network,
            "classification",
            structure=infoform.Inf(rank=s.rank),
            fit_options=infoform.FitOptions(
                statistics="all",
                input_rank=s.prior_rank,
                block_limit=1,  # no exact blocks
            ),
            seed=self.seed,
        )
        laplace.fit(batches(self.parts.curvature), progress=False)
        laplace.save(path, curvature=True)
        return laplace

    def baseline_piece(self, baseline: Baseline, samples: int | None = None) -> dict[str, Any]:
        begun = time.perf_counter()
        known, targets = baseline.predict_loader(batches(self.parts.test), samples=samples, progress=False)
        unknown, _ = baseline.predict_loader(batches(self.parts.unknown), samples=samples, progress=False)
        assert targets is not None
        seconds = {"predict": time.perf_counter() - begun}
        return {**measures(known, targets, unknown), "seconds": seconds}

    def ensemble_piece(self) -> dict[str, Any]:
        members = [self.trained(seed).network for seed in range(self.settings.networks)]
        return self.baseline_piece(Ensemble.of(members, "classification"))

    def dropout_piece(self) -> dict[str, Any]:
        dropout = MCDropout(self.trained(self.seed).network, "classification").fit([], progress=False)
        return self.baseline_piece(dropout, self.settings.samples)

    def swag_piece(self) -> dict[str, Any]:
        """Return the measures of SWAG, and under "swa" those of its mean."""
        s = self.settings
        loader = Shuffled(*self.parts.train, batch_size=s.batch_size, augment=self.parts.augment)
        swag = SWAG(
            self.trained(self.seed).network,
            "classification",
            epochs=s.swag_epochs,
            every=max(1, s.swag_epochs * len(loader) // s.swag_snapshots),
            rank=s.swag_snapshots,
            learning_rate=s.swag_learning_rate,
            weight_decay=s.l2,
            batch_norm_batches=max(1, s.curvature // s.batch_size),
            seed=self.seed,
        )
        begun = time.perf_counter()
        swag.fit(loader, progress=False)
        trained = time.perf_counter() - begun
        found = self.baseline_piece(swag, s.samples)
        found["seconds"]["fit"] = trained
        return found | {"swa": self.baseline_piece(Ensemble.of([swag.network], "classification"))}

    def laplace_piece(self, method: Method) -> dict[str, Any]:
        """Return the measures of a tuned posterior, what it was tuned to, and what it cost."""
        laplace = self.last_layer() if method.name == LAST_LAYER else self.laplace()
        kind, tuning = str(method.kind), method.tuning
        stored = {} if method.storage is None else {"storage": method.storage}
        options: dict[str, Any] = {
            "structure": laplace.settings.resolve("inf" if method.name == LAST_LAYER else method.name, stored),
            "prior": method.prior,
        }
        if method.prior == Activation.name:
            options["prior"] = Activation(rank=method.prior_rank, strength=method.prior_strength or 1.0)
        begun = time.perf_counter()
        if tuning == "search":
            tried = self._search(laplace, kind, options)
        else:
            tried = self._tune(laplace, kind, options, by_evidence=tuning == "evidence")
        tuned = time.perf_counter()
        predict = partial(laplace.predict_loader, kind=kind, samples=self._samples(kind), progress=False)
        with warnings.catch_warnings():  # rows of a posterior that is too wide say so by themselves
            warnings.filterwarnings("ignore", message="networks with sampled weights are much worse")
            known, targets = predict(batches(self.parts.test))
            unknown, _ = predict(batches(self.parts.unknown))
        assert targets is not None
        seconds = {"tune": tuned - begun, "predict": time.perf_counter() - tuned}
        facts = {
            "prior_precision": laplace.prior_precision,
            "num_data": laplace.num_data,
            "tried": tried,
            "seconds": seconds,
            "bytes": laplace.posterior().nbytes,
        }
        return {**measures(known, targets, unknown), **facts}

    def last_layer(self) -> infoform.Laplace:
        """Return a fit of the network's last layer alone."""
        laplace = infoform.Laplace(
            self.trained(self.seed).network,
            "classification",
            layers=[self.experiment.last_layer],
            structure=infoform.Inf(rank=self.settings.rank),
            fit_options=infoform.FitOptions(statistics="all", input_rank=self.settings.prior_rank),
        )
        return laplace.fit(batches(self.parts.curvature), progress=False)

    def _samples(self, kind: str, *, tuning: bool = False) -> int:
        if kind == "linear":  # draws of logits, which cost nothing
            return 100
        return self.settings.tuning_samples if tuning else self.settings.samples

    def _tune(
        self, laplace: infoform.Laplace, kind: str, options: Mapping[str, Any], *, by_evidence: bool
    ) -> list[list[float]]:
        """Choose τ; return what was tried on held-out data, but for networks that guess: [τ, NLL]."""
        common: dict[str, Any] = {"num_data": float(self.settings.train), "prior_precision": PRECISIONS, **options}
        if by_evidence:
            laplace.tune(**common)
            return []
        with warnings.catch_warnings():  # where no τ is better than the network alone, the best may be the largest
            warnings.filterwarnings("ignore", message="the best prior_precision")
            laplace.tune(
                batches(self.parts.validation),
                **common,
                trials=TRIALS,
                exact_trials=EXACT_TRIALS,
                kind=kind,
                samples=self._samples(kind, tuning=True),
                progress=False,
                **BY_THE_BEST_SCORE,
            )
        scores = {trial.prior_precision: trial.scores["nll"] for trial in laplace.trials}
        return [[tau, score] for tau, score in scores.items() if score <= GUESSES * min(scores.values())]

    def _search(self, laplace: infoform.Laplace, kind: str, options: Mapping[str, Any]) -> list[list[float]]:
        """Choose N and τ of the paper's grid; return all that was tried: [N, τ, ECE]."""
        size = float(self.settings.train)
        tried: list[list[float]] = []
        for count in (1.0, size, 2 * size):
            with warnings.catch_warnings():  # the best of one N may well be at an end: the range is the paper's
                warnings.filterwarnings("ignore", message="the best prior_precision")
                laplace.tune(
                    batches(self.parts.validation),
                    **options,
                    objective="ece",
                    trials=max(1, self.settings.search_trials // 3),
                    num_data=count,
                    prior_precision=SEARCHED_PRECISIONS,
                    kind=kind,
                    samples=self._samples(kind, tuning=True),
                    progress=False,
                    **BY_THE_BEST_SCORE,
                )
            tried += [[one.num_data, one.prior_precision, min(one.scores["ece"], 1e6)] for one in laplace.trials]
        laplace.num_data, laplace.prior_precision, _ = min(tried, key=lambda one: one[2])
        return tried


def batches(data: Data | Tensor, size: int = 100) -> list[Any]:
    """Cut data into batches: small ones, whose activations take memory that is there and not fresh pages."""
    if isinstance(data, Tensor):
        return list(data.split(size))
    return list(zip(data[0].split(size), data[1].split(size), strict=True))
