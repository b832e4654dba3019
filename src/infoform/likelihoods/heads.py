"""Several heads: a network that returns outputs by name, or as a tuple, with a likelihood for each.

    log p(y | f) = Σ_h log p_h(y_h | f_h)          heads are independent given the outputs

Outputs stand side by side as (N, *P, Σ C_h), targets as (N, *P, Σ K_h), classes and grades among them as numbers.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from infoform import metrics
from infoform.common.ignored import IGNORED
from infoform.likelihoods.base import Likelihood, check_batch, check_matrix
from infoform.prediction import Prediction


class Heads(Likelihood):
    """A likelihood for each head of a network that returns a dict, or a tuple, of outputs.

    All heads answer once for an example, or at the same positions. Targets come as one tensor, which `join_targets`
    makes of those of the heads. Predictions are taken apart by `split`.

    Args:
        heads: a likelihood for each head, by its name in the network's outputs, or in their order. A regression needs a
            known noise.
        outputs: the number of outputs of each head, named or ordered likewise.

    Raises:
        ValueError: if heads and outputs do not name the same, or a noise is not known.

    Example:
        ```python
        import torch
        from infoform import Classification, Heads, Regression
        heads = Heads({"kind": Classification(), "size": Regression(noise=0.1)}, outputs={"kind": 3, "size": 1})
        targets = heads.join_targets({"kind": torch.tensor([0, 2]), "size": torch.tensor([[0.5], [0.7]])})
        assert targets.shape == (2, 2)
        ```
    """

    name: ClassVar[str] = "heads"
    joins: ClassVar[bool] = True
    tuned_by_density: ClassVar[bool] = True
    takes_conformal: ClassVar[bool] = False
    axis = -1

    def __init__(
        self, heads: Mapping[str, Likelihood] | Sequence[Likelihood], *, outputs: Mapping[str, int] | Sequence[int]
    ) -> None:
        named, widths = _by_name(heads), _by_name(outputs)
        if not named or named.keys() != widths.keys():
            raise ValueError(
                f"outputs must give the number of outputs of each head, {', '.join(named) or 'none'}, got "
                f"{', '.join(widths) or 'none'}."
            )
        for name, head in named.items():
            if head.free_noise:
                raise ValueError(
                    f"the noise of a head must be known, and that of '{name}' is free; give it, as in "
                    "Regression(noise=0.1)."
                )
        # a noise belongs into the density of its head: there is no common one
        self.heads = {name: head.with_inner_noise(widths[name]) for name, head in named.items()}
        self.widths = {name: int(widths[name]) for name in named}

    def join_outputs(self, outputs: Any) -> Tensor:  # -> (N, *P, C)
        """Return the outputs of all heads side by side.

        Args:
            outputs: what the network returned: a dict, or a tuple.

        Returns:
            One tensor.

        Raises:
            TypeError: if it is neither.
            ValueError: if a head is missing, has another number of outputs, or other positions.
        """
        if isinstance(outputs, Tensor) or not isinstance(outputs, Mapping | tuple | list):
            raise TypeError(f"heads need a network that returns a dict or a tuple, got {type(outputs).__name__}.")
        given = _by_name(outputs)
        parts: list[Tensor] = []
        for name, head in self.heads.items():
            if not isinstance(given.get(name), Tensor):
                raise ValueError(f"the network must return a tensor for head '{name}', got {', '.join(given)}.")
            part = head.arrange_outputs(given[name])
            if part.shape[-1] != self.widths[name]:
                raise ValueError(
                    f"head '{name}' must have {self.widths[name]} outputs, as outputs= says, got {part.shape[-1]}."
                )
            if parts and part.shape[:-1] != parts[0].shape[:-1]:
                raise ValueError(
                    f"all heads must answer at the same positions, and head '{name}' has outputs of shape "
                    f"{tuple(part.shape)} beside {tuple(parts[0].shape)}; fit them one by one, with a module that "
                    "returns one head."
                )
            parts.append(part)
        return torch.cat(parts, dim=-1)

    def join_targets(self, targets: Mapping[str, Tensor] | Sequence[Tensor]) -> Tensor:  # -> (N, *P, K)
        """Return the targets of all heads side by side, as a loader is to give them.

        Args:
            targets: targets of each head, named or ordered as the heads are: (N, *P) classes, or numbers (N, *P, K).

        Returns:
            One tensor in float64; NaN where a class is −100.

        Raises:
            ValueError: if a head has none.
        """
        given, parts = _by_name(targets), []
        for name, head in self.heads.items():
            if name not in given:
                raise ValueError(f"targets need one for each head, {', '.join(self.heads)}, got {', '.join(given)}.")
            own = torch.as_tensor(given[name]).double()
            own = own.masked_fill(own == IGNORED, math.nan) if head.index_targets else own
            parts.append(own.unsqueeze(-1) if head.index_targets or own.dim() == 1 else own)
        return torch.cat(parts, dim=-1)

    def split(self, prediction: Prediction) -> dict[str, Prediction]:
        """Return the prediction of each head by its name.

        Args:
            prediction: a prediction made by this likelihood.

        Returns:
            Predictions as the heads' own likelihoods make them.
        """
        positions = prediction.positions
        rows = replace(prediction, mask=None).as_rows()[0] if positions else prediction
        assert rows.draws is not None
        found = {}
        for name, head in self.heads.items():
            own = self._columns(name)
            one = head.from_samples(rows.draws[..., own], rows.plain[..., own], noise=head.inner_noise)
            one = replace(one, kind=prediction.kind, reason=prediction.reason)
            one = one.at_positions(positions, prediction.mask) if positions else one
            found[name] = replace(one, input_novelty=prediction.input_novelty)
        return found

    def check_outputs(self, outputs: Tensor) -> Tensor:
        outputs = check_matrix(outputs, self.name)
        if outputs.shape[1] != sum(self.widths.values()):
            raise ValueError(f"heads must have {sum(self.widths.values())} outputs together, got {outputs.shape[1]}.")
        return outputs

    def check_targets(self, targets: Tensor, outputs: Tensor) -> Tensor:
        check_batch(targets, outputs)
        if targets.dim() != 2 or targets.shape[1] != sum(self._target_widths().values()):
            raise ValueError(
                f"heads need targets of shape {(len(outputs), sum(self._target_widths().values()))}, got "
                f"{tuple(targets.shape)}; make them by join_targets."
            )
        if not bool(targets.isfinite().all()):
            raise ValueError("every head must have a target wherever one of them has, got NaN or −100 for some only.")
        for name, (head, own) in self._targets(targets).items():
            head.check_targets(own, outputs[:, self._columns(name)])
        return targets.to(torch.float64)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        found = [
            head.log_prob(outputs[:, self._columns(name)], own.to(outputs) if own.is_floating_point() else own)
            for name, (head, own) in self._targets(targets.to(outputs.device)).items()
        ]
        return torch.stack(found).sum(0)

    def sample_targets(self, outputs: Tensor, uniforms: Tensor) -> Tensor:
        widths = [head.noise_width(self.widths[name]) for name, head in self.heads.items()]
        parts = []
        for (name, head), own in zip(self.heads.items(), uniforms.split(widths, dim=1), strict=True):
            drawn = head.sample_targets(outputs[:, self._columns(name)], own).double()
            parts.append(drawn.unsqueeze(1) if drawn.dim() == 1 else drawn)
        return torch.cat(parts, dim=1)

    def noise_width(self, num_outputs: int) -> int:
        return sum(head.noise_width(self.widths[name]) for name, head in self.heads.items())

    def fisher_root(self, outputs: Tensor) -> Iterator[Tensor]:
        for name, head in self.heads.items():
            for vector in head.fisher_root(outputs[:, self._columns(name)]):
                whole = torch.zeros_like(outputs)
                whole[:, self._columns(name)] = vector
                yield whole

    def num_vectors(self, num_outputs: int, kind: str, samples: int, positions: int = 1) -> int:
        if kind != "exact":
            return super().num_vectors(num_outputs, kind, samples, positions)
        return sum(head.num_vectors(self.widths[name], kind, samples, positions) for name, head in self.heads.items())

    def from_samples(self, samples: Tensor, plain: Tensor, *, noise: float | None) -> Prediction:
        parts = [
            head.from_samples(
                samples[..., self._columns(name)], plain[..., self._columns(name)], noise=head.inner_noise
            )
            for name, head in self.heads.items()
        ]
        return Prediction(
            epistemic=torch.cat([one.epistemic for one in parts], dim=1),
            aleatoric=torch.cat([one.aleatoric for one in parts], dim=1),
            entropy=torch.stack([one.entropy for one in parts]).sum(0),
            mutual_information=torch.stack([one.mutual_information for one in parts]).sum(0),
            plain=plain,
            mean=torch.cat([one.value for one in parts], dim=1),
            draws=samples,
        )

    def scores(self, prediction: Prediction, targets: Tensor) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, one in self.split(prediction).items():
            head, own = self._targets(targets, ignored=True)[name]
            found |= {f"{name}_{measure}": value for measure, value in head.scores(one, own).items()}
        prediction, targets = metrics.as_rows(prediction, targets)
        mean = float(self.log_density(prediction, targets).double().mean())
        return {"nll": -mean, "log_likelihood": mean, **found}

    def _columns(self, name: str) -> slice:
        names = list(self.widths)
        start = sum(self.widths[one] for one in names[: names.index(name)])
        return slice(start, start + self.widths[name])

    def _target_widths(self) -> dict[str, int]:
        return {name: head.target_width(self.widths[name]) for name, head in self.heads.items()}

    def _targets(self, targets: Tensor, *, ignored: bool = False) -> dict[str, tuple[Likelihood, Tensor]]:
        """Return the targets of each head in the form that it takes; where some are ignored, classes as −100."""
        widths = self._target_widths()
        found = {}
        for (name, head), own in zip(self.heads.items(), targets.split(list(widths.values()), dim=-1), strict=True):
            if head.index_targets:
                own = own.squeeze(-1)
                whole = own.nan_to_num(IGNORED) if ignored else own
                own = whole.long() if bool((whole == whole.round()).all()) else own
            found[name] = (head, own)
        return found


def _by_name(values: Any) -> dict[str, Any]:
    if isinstance(values, Mapping):
        return {str(name): one for name, one in values.items()}
    return {str(place): one for place, one in enumerate(values)}
