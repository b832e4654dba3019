"""One prediction for a batch of inputs, whatever the likelihood and the way it was made.

A prediction tells by itself what it answers: one of C classes, C yes/no labels, or C numbers (`Prediction.answer`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from infoform.common.ignored import ignored_value
from infoform.conformal import Conformal

TEXTS = ("kind", "reason")  # fields that a file holds as bytes
UNSTORED = ("input_novelty", "conformal", "no_conformal")  # stored in another way, or given anew
NO_CONFORMAL = "nothing was calibrated for it, or it is of another method"
FALSE_ALARMS = 0.05  # share of known inputs that may be called novel, where nothing else is said
Examples = TypeVar("Examples", bound=Any)  # a dataclass of tensors, by example along axis 1 of `samples`, 0 of others


@dataclass(frozen=True, eq=False)
class Novelty:
    """How unlike the training data inputs are: the share of known inputs that look less strange, between 0 and 1.

    Args:
        novelty: of all parts together, (N,).
        by_part: of each part alone, (N, P).
        by_layer: of the inputs of each layer alone, (N, L).
        part_names: names of the P parts.
        layer_names: names of the L layers.
        log_p_values: log of the share of known inputs that look stranger, (N, 1 + P + L): to all parts together, then
            to each part and to each layer. Where None, it is that of the shares above. Beyond the strangest known
            input a fitted tail goes on, so that inputs of novelty 1 still have an order.
        source: which known inputs the shares are of; empty where nobody said.

    Example:
        ```python
        import torch
        from infoform import Novelty
        novelty = Novelty(torch.tensor([0.2, 0.99]), torch.rand(2, 1), torch.rand(2, 1), ("head",), ("fc",))
        assert novelty.novel(false_alarms=0.05).tolist() == [False, True]
        ```
    """

    novelty: Tensor  # (N,)
    by_part: Tensor  # (N, P)
    by_layer: Tensor  # (N, L)
    part_names: tuple[str, ...]
    layer_names: tuple[str, ...]
    log_p_values: Tensor | None = None  # (N, 1 + P + L)
    source: str = ""

    def __len__(self) -> int:
        """Return the number N of examples."""
        return len(self.novelty)

    def __repr__(self) -> str:
        """Return how many inputs there are, and how many are novel."""
        examples, parts = _counted(len(self), "example"), ", ".join(self.part_names)
        share = float(self.novel().double().mean()) if len(self) else 0.0
        return f"<Novelty of {examples}: {share:.1%} novel; parts {parts}; {_counted(len(self.layer_names), 'layer')}>"

    @property
    def strangeness(self) -> Tensor:  # (N,)
        """Return minus the log of the share of known inputs that look stranger; it rises where novelty ends at 1."""
        return -(self.novelty.neg().log1p() if self.log_p_values is None else self.log_p_values[:, 0])

    @property
    def layer_strangeness(self) -> Tensor:  # (N, L)
        """Return the same of the inputs of each layer alone."""
        if self.log_p_values is None:
            return -self.by_layer.neg().log1p()
        return -self.log_p_values[:, 1 + len(self.part_names) :]

    @property
    def novelty_parts(self) -> dict[str, Tensor]:  # (N,) each
        """Return the novelty of each part alone, by its name."""
        return dict(zip(self.part_names, self.by_part.unbind(1), strict=True))

    @property
    def novelty_layers(self) -> dict[str, Tensor]:  # (N,) each
        """Return the novelty of each layer's inputs alone, by the layer's name."""
        return dict(zip(self.layer_names, self.by_layer.unbind(1), strict=True))

    @property
    def strangest_layers(self) -> list[str]:  # N
        """Return the layer that finds each input strangest; the first of those that find it equally strange."""
        return [self.layer_names[place] for place in self.layer_strangeness.argmax(1).tolist()]

    def novel(self, false_alarms: float = FALSE_ALARMS) -> Tensor:  # (N,)
        """Say which inputs are unlike the training data.

        Args:
            false_alarms: share of known inputs that may be called novel, between 0 and 1.

        Returns:
            Whether each input is novel, (N,).

        Raises:
            ValueError: if `false_alarms` is not between 0 and 1.
        """
        if not 0 < false_alarms < 1:
            raise ValueError(f"false_alarms must be a share of known inputs between 0 and 1, got {false_alarms}.")
        return self.novelty > 1 - false_alarms

    def columns(self) -> dict[str, list[Any]]:
        """Return the novelty as a table, with what is novel at 5 % of false alarms and the layer that says so.

        Returns:
            One list with N entries for each quantity, by the name of the column.
        """
        return {
            "novelty": self.novelty.tolist(),
            "novel": self.novel().tolist(),
            "strangest_layer": self.strangest_layers,
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return all fields as tensors for a file; `Novelty.of` reads them.

        Returns:
            Tensors by the name of the field.
        """
        names = {"part_names": _as_bytes("\n".join(self.part_names))}
        names["layer_names"] = _as_bytes("\n".join(self.layer_names))
        if self.log_p_values is not None:
            names["log_p_values"] = self.log_p_values
        if self.source:
            names["source"] = _as_bytes(self.source)
        return {"novelty": self.novelty, "by_part": self.by_part, "by_layer": self.by_layer, **names}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "Novelty":
        """Return the novelty with these fields.

        Args:
            tensors: what `tensors` returned.

        Returns:
            The novelty.
        """
        parts, layers = (tuple(_as_text(tensors[name]).split("\n")) for name in ("part_names", "layer_names"))
        source = _as_text(tensors["source"]) if "source" in tensors else ""
        novelty, by_part, by_layer = (tensors[name] for name in ("novelty", "by_part", "by_layer"))
        return cls(novelty, by_part, by_layer, parts, layers, tensors.get("log_p_values"), source)


@dataclass(frozen=True, eq=False)
class Prediction:
    """Class probabilities or means, and how uncertain they are: what more data could tell, and what it could not.

    A network may answer at several positions *P of an example, tokens or pixels: then every (N, C) below is (N, *P, C),
    with the C numbers of a position last, and every (N,) is (N, *P).

    Variances are those of the answer itself: of a class's indicator, of a label, or of the target. `epistemic` is the
    part that comes from not knowing the weights, `aleatoric` what remains if they were known; they add up to
    `variance`. Entropies are in nats.

    Args:
        epistemic: variance from not knowing the weights, (N, C).
        aleatoric: variance that would remain if the weights were known, (N, C).
        entropy: entropy of the prediction, (N,).
        mutual_information: the epistemic part of the entropy, (N,).
        plain: outputs of the trained network, (N, C).
        probs: probabilities of classes or labels, (N, C); None for numbers.
        mean: predicted numbers, (N, C); None for classes and labels.
        samples: probabilities or means of single networks, (M, N, C), where networks or outputs were sampled; not kept
            for more than 64 outputs, unless their kind was asked for.
        draws: outputs of single networks, (M, N, C'), of a likelihood whose density needs them.
        mask: which positions are no padding, (N, *P), where outputs have positions and it is known; None for all.
        max_entropy: the largest entropy that a prediction can have; NaN for numbers.
        kind: how it was made, as in `Laplace.predict`: "linear", "mc" or "linear-mc"; empty where nobody said.
        reason: why it was made so, in a few words.
        input_novelty: how unlike the training data the inputs are; None where the fit does not know.
        conformal: what sets and intervals are made of; None where there is no calibration for this prediction.
        no_conformal: why there is none, in a few words.

    Example:
        ```python
        import torch
        from infoform import Classification
        prediction = Classification().from_samples(torch.randn(10, 4, 3), torch.zeros(4, 3), noise=None)
        print(prediction.labels, prediction.confidence, prediction.epistemic.sum(1))
        ```
    """

    epistemic: Tensor  # (N, C)
    aleatoric: Tensor  # (N, C)
    entropy: Tensor  # (N,): of the prediction
    mutual_information: Tensor  # (N,): of answer and weights; the epistemic part of the entropy
    plain: Tensor  # (N, C): the trained network's own outputs
    probs: Tensor | None = None  # (N, C)
    mean: Tensor | None = None  # (N, C)
    samples: Tensor | None = None  # (M, N, C): probabilities or means of single networks, where asked for
    draws: Tensor | None = None  # (M, N, C'): outputs of single networks, where a density needs them
    mask: Tensor | None = None  # (N, *P): positions that are no padding
    max_entropy: float = math.nan  # of any prediction; none for regression
    kind: str = ""  # how it was made
    reason: str = ""  # why it was made so
    input_novelty: Novelty | None = None  # where the fit knows the training data's inputs
    conformal: Conformal | None = None  # where there is a calibration for such predictions
    no_conformal: str = NO_CONFORMAL  # why there is none

    def __len__(self) -> int:
        """Return the number N of examples."""
        return len(self.epistemic)

    def __repr__(self) -> str:
        """Return what is predicted of how many examples, and how sure it is on average."""
        examples, outputs = len(self), self.epistemic.shape[-1]
        what = {
            "class": f"one of {outputs} classes",
            "labels": _counted(outputs, "label"),
            "numbers": _counted(outputs, "number"),
        }
        how = f", {self.kind}" if self.kind else ""
        at = f" at {'×'.join(map(str, self.positions))} positions" if self.positions else ""
        told = [f"Prediction of {_counted(examples, 'example')}{at} ({what[self.answer]}{how})"]
        if self.probs is not None:
            told.append(f"mean confidence {float(self._probabilities().amax(-1).mean()):.3f}")
            told.append(f"mean entropy {float(self.entropy.mean()):.3f} of at most {self.max_entropy:.3f} nats")
            told.append(f"{float(self.mutual_information.mean()):.3f} of it for lack of data")
        else:
            told.append(f"mean standard deviation {float(self.std.mean()):.4g}")
            told.append(f"{float(self.epistemic.sqrt().mean()):.4g} of it for lack of data")
        if self.input_novelty is not None:
            told.append(f"{float(self.novel().double().mean()):.1%} novel")
        return f"<{'; '.join(told)}>"

    @property
    def answer(self) -> Literal["class", "labels", "numbers"]:
        """Return what is predicted: one of C classes, C yes/no labels, or C numbers."""
        if self.probs is None:
            return "numbers"
        # C yes/no answers can be less certain than one of C
        return "labels" if self.max_entropy > math.log(self.probs.shape[-1]) + 1e-6 else "class"

    @property
    def positions(self) -> tuple[int, ...]:
        """Return the shape *P of the positions of an example; empty where there are none."""
        return tuple(self.epistemic.shape[1:-1])

    @property
    def value(self) -> Tensor:  # (N, C)
        """Return the probabilities or, for regression, the mean."""
        value = self.mean if self.probs is None else self.probs
        assert value is not None
        return value

    @property
    def variance(self) -> Tensor:  # (N, C)
        """Return the variance of the answer: `epistemic + aleatoric`."""
        return self.epistemic + self.aleatoric

    @property
    def std(self) -> Tensor:  # (N, C)
        """Return the standard deviation of the answer."""
        return self.variance.sqrt()

    @property
    def labels(self) -> Tensor:  # (N,)
        """Return the most probable class."""
        return self._probabilities().argmax(-1)

    @property
    def confidence(self) -> Tensor:  # (N,)
        """Return the probability of the most probable class."""
        return self._probabilities().amax(-1)

    @property
    def normalised_entropy(self) -> Tensor:  # (N,)
        """Return the entropy as a share of the largest possible one, as the paper reports it."""
        self._probabilities()
        return self.entropy / self.max_entropy

    @property
    def novelty(self) -> Tensor:  # (N,)
        """Return the share of known inputs that look less strange, between 0 and 1."""
        return self._novelty().novelty

    @property
    def novelty_parts(self) -> dict[str, Tensor]:  # (N,) each
        """Return the novelty of each part alone, by its name: "typicality", "head", "answer"."""
        return self._novelty().novelty_parts

    @property
    def novelty_layers(self) -> dict[str, Tensor]:  # (N,) each
        """Return the novelty of each layer's inputs alone, by the layer's name."""
        return self._novelty().novelty_layers

    @property
    def novelty_source(self) -> str:
        """Return which known inputs the shares of novelty are of; those of training make fresh inputs look strange."""
        return self._novelty().source

    def novel(self, false_alarms: float = FALSE_ALARMS) -> Tensor:  # (N,)
        """Say which inputs are unlike the training data.

        Args:
            false_alarms: share of known inputs that may be called novel, between 0 and 1.

        Returns:
            Whether each input is novel, (N,).

        Raises:
            ValueError: if `false_alarms` is not between 0 and 1, or the fit knows nothing of the inputs.
        """
        return self._novelty().novel(false_alarms)

    def quantile(self, q: float) -> Tensor:  # (N, C)
        """Return the value that the target stays below with probability q, of a Gaussian with `mean` and `variance`.

        Args:
            q: probability, between 0 and 1.

        Returns:
            The quantiles, (N, C).

        Raises:
            ValueError: if q is not between 0 and 1, or the prediction is of classes or labels.
        """
        if not 0 < q < 1:
            raise ValueError(f"a quantile must be between 0 and 1, got {q}.")
        if self.mean is None:
            raise ValueError("quantiles are of regression predictions; a classifier has .probs.")
        return self.mean + math.sqrt(2) * torch.erfinv(self.mean.new_tensor(2 * q - 1)) * self.std

    def gaussian_interval(self, coverage: float = 0.95) -> tuple[Tensor, Tensor]:  # (N, C), (N, C)
        """Return the interval that a Gaussian with `mean` and `variance` has probability `coverage` in.

        It holds that share of targets as far as the noise and the posterior are right; `interval` does without that.

        Args:
            coverage: probability, between 0 and 1.

        Returns:
            Lower and upper ends, (N, C) each.

        Raises:
            ValueError: if `coverage` is not between 0 and 1, or the prediction is of classes or labels.
        """
        return self.quantile((1 - coverage) / 2), self.quantile((1 + coverage) / 2)

    def interval(
        self, coverage: float = 0.9, *, scale: str = "std", by: str | None = None, joint: bool = False
    ) -> tuple[Tensor, Tensor]:  # (N, C), (N, C)
        """Return the interval that holds the target in at least that share of cases: mean ± threshold · std.

        The promise is that of split conformal prediction: it needs that calibration data and inputs come from the same
        source, and nothing of the network, the noise or the posterior.

        Args:
            coverage: share of intervals that are to hold the target, between 0 and 1.
            scale: "std" for widths in proportion to the standard deviation, "constant" for the same width everywhere.
            by: None for one promise over all inputs, "novelty" for one within every group of novelty.
            joint: whether all numbers of an input are to be in their intervals at once; otherwise each by itself.

        Returns:
            Lower and upper ends, (N, C) each.

        Raises:
            ValueError: if there is no calibration, or too few examples in it for this share; if an argument has a
                value that it cannot have, or the prediction is of classes or labels.
        """
        if self.mean is None:
            raise ValueError("intervals are of regression predictions; a classifier has .set(0.9) and .probs.")
        conformal, novelty = (
            self._conformal("gaussian_interval needs none, and trusts the noise"),
            self._group_novelty(by),
        )
        mean, std = (one.reshape(-1, one.shape[-1]) for one in (self.mean, self.std))
        low, high = conformal.interval(mean, std, coverage, scale=scale, by=by, novelty=novelty, joint=joint)
        return low.view(self.mean.shape), high.view(self.mean.shape)

    def set(
        self, coverage: float = 0.9, *, score: str = "adaptive", by: str | None = None, allow_empty: bool = False
    ) -> Tensor:  # (N, C)
        """Return the classes that are to be reckoned with: the right one is among them in at least that share of cases.

        The promise is that of split conformal prediction, as for `interval`.

        Args:
            coverage: share of sets that are to hold the right class, between 0 and 1.
            score: "adaptive" (larger sets where the network is unsure) or "least-ambiguous" (the smallest sets on
                average).
            by: None for one promise over all inputs, "class" for one within every class, "novelty" for one within
                every group of novelty.
            allow_empty: whether a set may be empty, which lets the share be met exactly where most answers are right;
                otherwise the most probable class is always in.

        Returns:
            Whether each class is in the set of each input, (N, C).

        Raises:
            ValueError: if there is no calibration, or too few examples in it for this share; if an argument has a
                value that it cannot have, or the prediction is not of one of C classes.
        """
        if self.answer != "class":
            raise ValueError(
                "prediction sets are of one of C classes; "
                + ("a regression has .interval(0.9)." if self.probs is None else "yes/no labels have .probs.")
            )
        novelty, probs = self._group_novelty(by), self._probabilities()
        conformal = self._conformal("probs need none")
        rows = probs.reshape(-1, probs.shape[-1])
        return conformal.set(rows, coverage, score=score, by=by, novelty=novelty, allow_empty=allow_empty).view(
            probs.shape
        )

    def columns(self) -> dict[str, list[Any]]:
        """Return the prediction as a table: `pandas.DataFrame(prediction.columns())`.

        Returns:
            One list with N entries for each quantity of each output, by the name of the column. At positions it has an
            entry for every position that is no padding, and "index" and "position" say which.
        """
        if self.positions:
            return self._columns_by_position()
        per_output = {"prob": self.probs, "mean": self.mean, "epistemic": self.epistemic, "aleatoric": self.aleatoric}
        table: dict[str, list[Any]] = {}
        if self.probs is not None:
            table |= {"label": self.labels.tolist(), "confidence": self.confidence.tolist()}
        for name, values in per_output.items():
            if values is not None:
                table |= {f"{name}_{index}": column.tolist() for index, column in enumerate(values.T)}
        table |= {"entropy_nats": self.entropy.tolist(), "mutual_information_nats": self.mutual_information.tolist()}
        return table if self.input_novelty is None else table | self.input_novelty.columns()

    def _columns_by_position(self) -> dict[str, list[Any]]:
        """Return the table of all positions, row by row."""
        rows, kept = self.as_rows()
        examples, places = (kept // math.prod(self.positions)).tolist(), kept % math.prod(self.positions)
        where = [place.tolist() for place in torch.unravel_index(places, self.positions)]
        index = {"index": examples, "position": [" ".join(map(str, one)) for one in zip(*where, strict=True)]}
        table: dict[str, list[Any]] = index | replace(rows, input_novelty=None).columns()
        if self.input_novelty is not None:
            own = self.input_novelty.columns()
            table |= {name: [values[place] for place in examples] for name, values in own.items()}
        return table

    def as_rows(self, which: Tensor | None = None) -> tuple["Prediction", Tensor]:
        """Return a prediction with an example for every position, without positions.

        Args:
            which: which positions are to be there, (N, *P); those that are no padding where not given.

        Returns:
            The prediction of these rows, and their places among all N · P, example by example.
        """
        chosen = self.mask if which is None else which.to(self.epistemic.device)
        count = self.entropy.numel()
        kept = torch.arange(count, device=self.epistemic.device)
        kept = kept if chosen is None else kept[chosen.flatten()]
        values: dict[str, Any] = {"mask": None, "input_novelty": None}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor) and field.name != "mask":
                axis = _example_axis(field.name)
                whole = value.flatten(axis, axis + len(self.positions))
                values[field.name] = whole if len(kept) == count else whole.index_select(axis, kept)
        return replace(self, **values), kept

    def example_mean(self, values: Tensor) -> Tensor:  # (N, *P) -> (N,)
        """Return the mean of some values over the positions of an example that are no padding.

        Args:
            values: one number for every position, such as `entropy`.

        Returns:
            One number for every example; the values themselves where there are no positions.
        """
        if not self.positions:
            return values
        flat = values.flatten(1)
        if self.mask is None:
            return flat.mean(1)
        there = self.mask.flatten(1).to(flat)
        return (flat * there).sum(1) / there.sum(1).clamp_min(1)

    def at_positions(self, positions: Sequence[int], mask: Tensor | None = None) -> "Prediction":
        """Return a prediction of rows with the rows of an example together; undoes `as_rows` of all positions.

        Args:
            positions: shape *P of the positions of an example.
            mask: which of them are no padding, (N, *P).

        Returns:
            The prediction of N examples at these positions.
        """
        values: dict[str, Any] = {"mask": mask}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor) and field.name != "mask":
                values[field.name] = value.unflatten(_example_axis(field.name), (-1, *positions))
        return replace(self, **values)

    def tensors(self) -> dict[str, Tensor]:
        """Return all fields that are not None, as tensors for a file; `Prediction.of` reads them.

        Returns:
            Tensors by the name of the field.
        """
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in UNSTORED}
        values["max_entropy"] = torch.tensor(self.max_entropy, dtype=torch.float64)
        for name in TEXTS:
            values[name] = _as_bytes(values[name]) if values[name] else None
        if self.input_novelty is not None:
            values |= {f"input_novelty.{name}": one for name, one in self.input_novelty.tensors().items()}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "Prediction":
        """Return the prediction with these fields.

        Args:
            tensors: what `tensors` returned.

        Returns:
            The prediction.
        """
        texts: dict[str, Any] = {name: _as_text(tensors[name]) for name in TEXTS if name in tensors}
        plain = {name: one for name, one in tensors.items() if "." not in name}
        if len(plain) < len(tensors):
            nested = {name.removeprefix("input_novelty."): one for name, one in tensors.items() if "." in name}
            texts["input_novelty"] = Novelty.of(nested)
        return cls(**{**plain, **texts, "max_entropy": float(tensors["max_entropy"])})

    def _conformal(self, otherwise: str) -> Conformal:
        if self.conformal is None:
            raise ValueError(
                f"this prediction has no conformal calibration: {self.no_conformal}; call tune(val_loader) or "
                f"calibrate_conformal(loader) before predict ({otherwise})."
            )
        return self.conformal

    def _group_novelty(self, by: str | None) -> Tensor | None:  # (N,)
        if by != "novelty":
            return None
        return self.novelty.repeat_interleave(math.prod(self.positions)) if self.positions else self.novelty

    def _novelty(self) -> Novelty:
        if self.input_novelty is None:
            raise ValueError(
                "this prediction has no novelty: it is of a fit with FitOptions(novelty=False) or too few examples, of "
                "a file of an earlier version, or of another method; fit again, or call calibrate_novelty, to have it."
            )
        return self.input_novelty

    def _probabilities(self) -> Tensor:
        if self.probs is None:
            raise ValueError("this is a regression prediction: it has .mean and .variance, not classes.")
        return self.probs


def join_predictions(parts: Sequence[Examples]) -> Examples:
    """Return the predictions, or other values by example, of several batches as one.

    Args:
        parts: values of the batches, in order.

    Returns:
        One value of all examples.
    """
    if isinstance(parts[0], Prediction):
        parts = _of_one_size(parts)  # type: ignore[assignment]
    first = parts[0]
    values: dict[str, Any] = {}
    for field in fields(first):
        found = [getattr(part, field.name) for part in parts]
        if isinstance(found[0], Tensor):
            values[field.name] = torch.cat(found, dim=_example_axis(field.name))
        elif isinstance(found[0], Novelty):
            values[field.name] = join_predictions(found)
    return replace(first, **values)


def select_examples(prediction: Examples, places: Tensor) -> Examples:  # (n,)
    """Return the prediction of some examples, in the order of `places`.

    Args:
        prediction: prediction of N examples.
        places: positions of the examples, (n,), on any device.

    Returns:
        The prediction of these n examples, on the device of `prediction`.
    """
    values: dict[str, Any] = {}
    for field in fields(prediction):
        value = getattr(prediction, field.name)
        if isinstance(value, Tensor):
            values[field.name] = value.index_select(_example_axis(field.name), places.to(value.device))
        elif isinstance(value, Novelty):
            values[field.name] = select_examples(value, places)
    return replace(prediction, **values)


def move_prediction(prediction: Examples, device: torch.device | str) -> Examples:
    """Return the prediction with its tensors on a device.

    Args:
        prediction: prediction of N examples.
        device: where its tensors are to be.

    Returns:
        The same prediction there.
    """
    values: dict[str, Any] = {}
    for field in fields(prediction):
        value = getattr(prediction, field.name)
        if isinstance(value, Tensor):
            values[field.name] = value.to(device)
        elif isinstance(value, Novelty):
            values[field.name] = move_prediction(value, device)
    return replace(prediction, **values)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _as_bytes(text: str) -> Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


def _as_text(numbers: Tensor) -> str:
    return bytes(numbers.tolist()).decode()


def _example_axis(field: str) -> int:
    return 1 if field in ("samples", "draws") else 0


def _of_one_size(parts: Sequence[Prediction]) -> list[Prediction]:
    """Return predictions with as many positions in all of them: shorter ones are filled up, and masked there."""
    shapes = {part.positions for part in parts}
    masked = any(part.mask is not None for part in parts)
    if len(shapes) == 1 and not masked:
        return list(parts)
    if len({len(shape) for shape in shapes}) > 1:
        raise ValueError(f"all batches must have positions of one kind, got outputs at {sorted(shapes)}.")
    largest = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
    return [_filled_up(part, largest) for part in parts]


def _filled_up(part: Prediction, positions: tuple[int, ...]) -> Prediction:
    there = torch.ones(len(part), *part.positions, dtype=torch.bool, device=part.epistemic.device)
    values: dict[str, Any] = {"mask": _padded(there if part.mask is None else part.mask, 1, positions)}
    for field in fields(part):
        value = getattr(part, field.name)
        if isinstance(value, Tensor) and field.name != "mask":
            values[field.name] = _padded(value, _example_axis(field.name) + 1, positions)
    return replace(part, **values)


def _padded(x: Tensor, start: int, positions: tuple[int, ...], value: float = 0) -> Tensor:
    """Return a tensor with these sizes from an axis on, filled up at the ends."""
    shape = (*x.shape[:start], *positions, *x.shape[start + len(positions) :])
    if x.shape == shape:
        return x
    whole = x.new_full(shape, value)
    whole[
        (*(slice(None) for _ in range(start)), *(slice(size) for size in x.shape[start : start + len(positions)]))
    ] = x
    return whole


def join_targets(parts: Sequence[Tensor], positions: int) -> Tensor:
    """Return the targets of several batches as one; those of fewer positions are filled up with what does not count.

    Args:
        parts: targets of the batches, (N, *P, ...).
        positions: number of axes of positions.
    """
    if positions == 0 or len({part.shape[1:] for part in parts}) == 1:
        return torch.cat(list(parts))
    largest = tuple(max(part.shape[1 + axis] for part in parts) for axis in range(positions))
    return torch.cat([_padded(part, 1, largest, ignored_value(part)) for part in parts])
