"""The outputs of all trials of a search over τ, at the cost of few predictions.

A part of the data is predicted at every fourth τ, and interpolated between them; where the choice may fall, it is
predicted at every τ. The part tells which τ matter, and how outputs at one τ follow from those at others
(combinations.py for covariances, scaled_networks.py for sampled networks). All data are predicted at one τ or two;
outputs at all others follow from these. comparison.py and sampled_comparison.py say which τ is taken.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from torch import Tensor
from torch.utils.data import DistributedSampler

from infoform.network.batches import Batch, batch_size
from infoform.posteriors.network_posterior import Posterior
from infoform.predicting.over_loader import outputs_under
from infoform.predicting.predictor import PredictOptions, Predictor
from infoform.predicting.raw_outputs import RawOutputs
from infoform.tuning.combinations import combination_weights, interpolated, neighbours
from infoform.tuning.kept_outputs import KeptOutputs
from infoform.tuning.scaled_networks import Halves, mixed
from infoform.tuning.validation_data import every_nth

PART_STEP = {"linear": 16}  # one of so many examples is in the part;
SAMPLED_STEP = 10  # of sampled networks, one of so many, by
PART_SAMPLES = 10  # networks
FEW = 4  # one of so many networks is run over all data before all are
LEAST_PART = 64  # examples
SMALL_WORK = 2e9  # weights × examples × networks × τ up to which all data are predicted at every τ
COARSE = 4  # one of so many τ is predicted first
FEW_EXACT = {False: 3, True: 2}  # τ at which all data are predicted, without and with sampled networks
POSTERIOR_BYTES = 32 * 2**20  # of posteriors that are held at a time, besides the one that is held anyway
BYTES_PER_WEIGHT = 24  # of what a posterior computes for a τ
NO_TARGETS = "a search needs targets, and the validation loader gave none; give (x, y) batches."


@dataclass
class TrialOutputs:
    """Raw outputs of all data by trial: predicted, or combined from predicted ones."""

    predictor: Predictor
    build: Callable[[float], Posterior]  # of τ
    precisions: Sequence[float]  # τ of every trial
    batches: list[Batch]
    sampler: DistributedSampler[object] | None
    options: PredictOptions
    kept: KeptOutputs
    exact_trials: int | None = None  # at how many τ, at most, all data are predicted; None for a few
    tick: Callable[[int], None] = field(default=lambda _: None)
    predicted: dict[int, RawOutputs] = field(default_factory=dict)  # of the part, by place
    part: list[Batch] | None = field(init=False)  # None where it would be no smaller than all data

    def __post_init__(self) -> None:
        self.part = self._part()

    @property
    def examples(self) -> int:
        """Return the number of all examples."""
        return sum(map(batch_size, self.batches))

    @property
    def is_whole(self) -> bool:
        """Whether all data are predicted at every τ."""
        return self.part is None

    @property
    def is_sampled(self) -> bool:
        """Whether outputs are those of sampled networks."""
        return self.options.kind != "linear"

    @property
    def most_exact(self) -> int:
        """Return at how many τ all data are predicted, at most."""
        return FEW_EXACT[self.is_sampled] if self.exact_trials is None else self.exact_trials

    @property
    def coarse(self) -> list[int]:
        """Return the places at which the part is predicted first."""
        last = len(self.precisions) - 1
        return list(range(last + 1)) if self.is_whole else [*range(0, last, COARSE), last]

    def predict_part(self, places: Sequence[int]) -> tuple[RawOutputs, Tensor]:
        """Predict the part, or all data where there is none, at some τ; return those of one τ, and the targets."""
        batches = self.batches if self.part is None else self.part
        found, targets = self._outputs("part", places, batches, self._part_options())
        self.predicted |= zip(places, found, strict=True)
        return found[0], targets

    def of_part(self, place: int) -> RawOutputs:
        """Return the outputs of the part at a τ, predicted or interpolated."""
        if place in self.predicted:
            return self.predicted[place]
        return interpolated(
            self.precisions[place], {self.precisions[known]: raw for known, raw in self.predicted.items()}
        )

    def sources(self, place: int) -> tuple[int, ...]:
        """Return the places whose predictions `of_part` comes from."""
        if place in self.predicted:
            return (place,)
        places = {self.precisions[known]: known for known in self.predicted}
        return tuple(places[tau] for tau in neighbours(self.precisions[place], places))

    def predict_few(self, place: int) -> tuple[RawOutputs, Tensor]:
        """Return the outputs of a few sampled networks for all data at a τ, and the targets."""
        few = min(self.options.samples, max(PART_SAMPLES, self.options.samples // FEW))
        (raw,), targets = self._outputs("few", [place], self.batches, replace(self.options, samples=few))
        return raw, targets

    def predict_all(self, places: Sequence[int]) -> tuple[list[RawOutputs], Tensor]:
        """Return the outputs of all data at some τ, predicted, and the targets."""
        return self._outputs("all", places, self.batches, self.options)

    def combined(self, place: int, exact: Mapping[int, RawOutputs]) -> tuple[RawOutputs, RawOutputs]:
        """Return a trial's outputs of all data, combined from exact ones, and those of the part, combined likewise."""
        if self.options.kind != "linear":
            return self._mixed(place, exact)
        parts = [self.of_part(node) for node in exact]
        weights = combination_weights(self.of_part(place), parts)
        return RawOutputs.combined(weights, list(exact.values())), RawOutputs.combined(weights, parts)

    def _mixed(self, place: int, exact: Mapping[int, RawOutputs]) -> tuple[RawOutputs, RawOutputs]:
        """Return sampled outputs, of all data and of the part, from those at the nearest τ on both sides."""
        below, above = [node for node in exact if node <= place], [node for node in exact if node > place]
        nodes = [*sorted(below)[-1:], *sorted(above)[:1]]
        shares = [1.0]
        if len(nodes) == 2:
            share = (place - nodes[0]) / (nodes[1] - nodes[0])
            sizes = [Halves.of(exact[node]).log_sizes[0] for node in nodes]
            shares = [(1 - share) * math.exp(-sizes[0]), share * math.exp(-sizes[1])]
        log_sizes = Halves.of(self.of_part(place)).log_sizes
        return mixed([exact[node] for node in nodes], shares, log_sizes, [self.of_part(node) for node in nodes])

    def _part_options(self) -> PredictOptions:
        if not self.is_sampled or self.part is None:
            return self.options
        return replace(self.options, samples=min(PART_SAMPLES, self.options.samples))

    def _part(self) -> list[Batch] | None:
        step = min(PART_STEP.get(self.options.kind, SAMPLED_STEP), self.examples // LEAST_PART)
        ascending = sorted(set(self.precisions)) == list(self.precisions)
        if (
            self.predictor.is_implicit
            or self.sampler is not None
            or len(self.precisions) < max(2 * COARSE, self.most_exact + 1)
            or step < 2
            or self._work <= SMALL_WORK
            or not ascending
        ):
            return None
        return every_nth(self.batches, step)

    @property
    def _weights(self) -> int:
        return sum(layer.shape[0] * layer.shape[1] for layer in self.predictor.layers.values())

    @property
    def _work(self) -> float:
        networks = self.predictor.num_outputs or 1 if self.options.kind == "linear" else self.options.samples
        return float(self._weights * self.examples * networks * len(self.precisions))

    def _outputs(
        self, name: str, places: Sequence[int], batches: list[Batch], options: PredictOptions
    ) -> tuple[list[RawOutputs], Tensor]:
        names = {place: f"{name}-{place}" for place in places}
        missing = [place for place in places if self.kept.get(names[place]) is None]
        step = max(1, POSTERIOR_BYTES // (BYTES_PER_WEIGHT * self._weights)) if options.kind == "linear" else 1
        for start in range(0, len(missing), step):
            group = missing[start : start + step]
            posteriors = [self.build(self.precisions[place]) for place in group]
            predict = partial(outputs_under, sampler=self.sampler, tick=self.tick)
            outputs, targets = predict(self.predictor, posteriors, batches, options)
            if targets is None:
                raise ValueError(NO_TARGETS)
            found = {names[place]: raw for place, raw in zip(group, outputs, strict=True)}
            self.kept.put(found, {name: targets})
        outputs = [raw for place in places if (raw := self.kept.get(names[place])) is not None]
        return outputs, self.kept.targets(name)
