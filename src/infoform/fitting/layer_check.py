"""The self-check of a fit: every layer is looked at with the first batch that calls it, and held fixed where it is odd.

A layer is odd where captured gradients are not those of the examples (network/self_check.py), or where its inputs are
overwritten. A layer that the user named is not held fixed: the fit is refused.
"""

import warnings
from collections.abc import Collection
from dataclasses import dataclass, field

from infoform.curvature.curvature import Fit
from infoform.fitting.fit_task import FitTask
from infoform.fitting.reader import PassProgress
from infoform.network.batches import Batch
from infoform.network.capture import Capture
from infoform.network.self_check import check_network

DEPENDENT = (
    "the outputs of an example must not depend on the other examples of its batch, and they do: the same examples have "
    "other outputs in a smaller batch, so that none has a gradient of its own; take what mixes examples out of the "
    "model's forward (a mean or norm over the batch, a graph whose nodes are the examples), or fit on batches of one."
)

RANDOM = (
    "the model draws random numbers even in evaluation mode, so that its outputs and gradients are those of one draw, "
    "and those of single examples were not compared; switch the noise off where the model is evaluated."
)


@dataclass
class LayerCheck:
    """What is known of a fit's layers so far."""

    task: FitTask
    may_change: bool = True  # False where an earlier fit has these layers, which then cannot be held fixed any more
    checked: set[str] = field(default_factory=set)
    divisible: bool = True  # whether examples can be taken out of batches

    @property
    def is_first(self) -> bool:
        """Whether no layer has been looked at."""
        return self.task.check and not self.checked

    def has_new(self, called: Collection[str]) -> bool:
        """Whether a forward pass has called layers that were not looked at."""
        return self.task.check and not self.checked.issuperset(called)

    def look(self, capture: Capture, called: Collection[str], batch: Batch, progress: PassProgress) -> None:
        """Look at layers that this batch calls and that were not looked at before.

        Args:
            capture: The network; its forward pass has to be made, or made again, afterwards.
            called: The layers that may be called.
            batch: The batch.
            progress: Is told which layers are odd.

        Raises:
            ValueError: If outputs depend on the rest of the batch, or a layer that the user named is odd.
        """
        new = set(called) - self.checked
        layers = {name: layer for name, layer in self.task.layers.items() if name in new}
        verdict = check_network(capture, layers, batch, self.task.likelihood.arrange_outputs)
        self.checked |= verdict.layers
        if verdict.dependent:
            raise ValueError(DEPENDENT)
        if verdict.trouble:
            warnings.warn(
                f"the captured gradients could not be compared with autograd's ({verdict.trouble}); pass check=False "
                "to fit without the comparison.",
                stacklevel=2,
            )
        if verdict.random:
            warnings.warn(RANDOM, stacklevel=2)
        self.divisible = self.divisible and verdict.divisible
        capture.axes.update(verdict.axes)
        for name, reason in verdict.odd.items():
            self._hold(name, reason, progress)

    def note(self, capture: Capture, progress: PassProgress) -> None:
        """Take over the layers that the present pass has found odd."""
        progress.without_gradient |= capture.without_gradient
        for name, reason in capture.odd.items():
            self._hold(name, reason, progress)

    def _hold(self, name: str, reason: str, progress: PassProgress) -> None:
        if name in progress.odd:
            return
        if name in self.task.named:
            raise ValueError(f"layer '{name}', which layers= names, cannot have a posterior: {reason}; leave it out.")
        if not self.may_change:
            raise ValueError(
                f"layer '{name}' has a posterior from the fit before, and cannot be updated with these data: {reason}; "
                "use batches as in that fit."
            )
        progress.odd[name] = reason


def warn_of_held_layers(fit: Fit) -> None:
    """Warn the caller's caller of layers that are held fixed because their gradients are not those of examples."""
    if not fit.odd:
        return
    names = [name for name in fit.unreached if name in fit.odd]
    more = f" So {'is 1 other' if len(names) == 2 else f'are {len(names) - 1} others'}." if len(names) > 1 else ""
    warnings.warn(
        f"layer '{names[0]}' is held fixed: {fit.unreached[names[0]]}.{more} coverage() has every reason.",
        stacklevel=3,
    )
