"""Deep ensemble: M networks trained from different random weights; Lakshminarayanan et al. 2017.

As in the paper compared with here, without adversarial training.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from typing_extensions import Self

from infoform.baselines.baseline import Bar, Baseline
from infoform.baselines.descent import descend
from infoform.common.checks import check_whole
from infoform.common.randomness import isolated
from infoform.likelihoods import Likelihood
from infoform.network.batches import Batch, read_outputs
from infoform.network.capture import evaluation_mode


class Ensemble(Baseline):
    """Networks that differ in their seed alone, trained by Adam; member m has the seed `seed + m`.

    Args:
        model: the network to start from; it is not changed.
        likelihood: name in `infoform.likelihoods.LIKELIHOODS`, or a likelihood.
        members: number of networks.
        factory: makes a network with fresh random weights; unless given, every layer of a copy of the model draws its
            weights anew (`reset_parameters`).
        epochs: number of epochs.
        learning_rate: learning rate of Adam.
        weight_decay: weight decay of Adam.
        seed: seed of training and of predictions.

    Attributes:
        members: the trained networks, after a fit.

    Raises:
        ValueError: if `members` or `epochs` is not a whole number of at least 1.

    Example:
        ```python
        import torch
        from infoform.baselines import Ensemble
        data = [(torch.randn(20, 3), torch.randint(2, (20,)))]
        ensemble = Ensemble(torch.nn.Linear(3, 2), "classification", members=3, epochs=2).fit(data, progress=False)
        assert ensemble.predict(torch.randn(5, 3)).samples.shape == (3, 5, 2)
        ```
    """

    name: ClassVar[str] = "ensemble"

    def __init__(
        self,
        model: nn.Module,
        likelihood: str | Likelihood,
        *,
        members: int = 5,
        factory: Callable[[], nn.Module] | None = None,
        epochs: int = 10,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(model, likelihood, seed=seed)
        check_whole("members", members)
        check_whole("epochs", epochs)
        self.factory = factory
        self.epochs, self.learning_rate, self.weight_decay = epochs, learning_rate, weight_decay
        self.default_samples = members
        self.members: list[nn.Module] = []

    @classmethod
    def of(cls, networks: Sequence[nn.Module], likelihood: str | Likelihood) -> Self:
        """Return the ensemble of networks that are trained already.

        Args:
            networks: trained networks; they are used as they are, not copied.
            likelihood: name in `infoform.likelihoods.LIKELIHOODS`, or a likelihood.

        Returns:
            The ensemble, fitted.

        Raises:
            ValueError: if there are no networks, or the noise of a regression is not known.
        """
        if not networks:
            raise ValueError("an ensemble needs at least one network, got none.")
        ensemble = cls(networks[0], likelihood, members=len(networks))
        if ensemble.likelihood.free_noise:
            raise ValueError("an ensemble of trained networks needs a known noise; give Regression(noise=...).")
        ensemble._network, ensemble.members = networks[0], list(networks)
        ensemble.noise = ensemble._fitted_noise([])
        return ensemble

    def _train(self, network: nn.Module, loader: Iterable[Any], bar: Bar) -> None:
        count = self.default_samples
        tick = bar("ensemble", count * self.epochs)
        self.members = []
        for number in range(count):
            with isolated(self.seed + number, loader=loader):
                fresh = _redrawn(self.model) if self.factory is None else self.factory()
                rate, decay = self.learning_rate, self.weight_decay
                optimizer = torch.optim.Adam(fresh.parameters(), rate, weight_decay=decay)
                descend(fresh, loader, self.likelihood, optimizer, epochs=self.epochs, tick=tick)
            self.members.append(fresh.eval())
        network.load_state_dict(self.members[0].state_dict())

    def _sampled_outputs(self, batch: Batch, samples: int, seed: int) -> Tensor:  # -> (M, N, C)
        if samples > len(self.members):
            raise ValueError(f"samples must be at most the {len(self.members)} members, got {samples}; train more.")
        return torch.stack([self._member_outputs(member, batch) for member in self.members[:samples]])

    def _member_outputs(self, member: nn.Module, batch: Batch) -> Tensor:  # -> (N, C)
        with evaluation_mode(member):
            outputs = functional_call(member, {}, batch.args, batch.kwargs)
            return self.likelihood.check_outputs(read_outputs(outputs))


def _redrawn(model: nn.Module) -> nn.Module:
    """Return a copy whose layers have drawn their weights anew."""
    fresh = copy.deepcopy(model)
    for name, module in fresh.named_modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
        elif next(module.parameters(recurse=False), None) is not None:
            raise ValueError(
                f"'{name}' is a {type(module).__name__} that cannot draw its weights anew (no reset_parameters); "
                "give factory=."
            )
    return fresh
