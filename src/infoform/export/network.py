"""The network inside a graph: its outputs, the inputs of its last layer and its novelty, from one forward pass."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call

from infoform.export.stored_weights import StoredWeights
from infoform.likelihoods import Likelihood
from infoform.network.batches import Batch, read_outputs
from infoform.network.hooks import hooked
from infoform.network.layer import Layer
from infoform.novelty.scorer import NoveltyScorer
from infoform.prediction import Novelty


@dataclass(frozen=True)
class Seen:
    """What one forward pass has shown of N examples."""

    outputs: Tensor  # (N, C)
    head_inputs: Tensor | None  # (N, A), with the bias's 1 as last column
    novelty: Novelty | None


class Network(nn.Module):
    """A private copy of the user's modules, with weights that may be stored in fewer bytes.

    Args:
        model: a copy of the model in evaluation mode; where weights are stored otherwise, their places become empty.
        likelihood: what its outputs are for.
        scorer: on that copy; None where nothing is known of the inputs.
        head: the last layer on that copy, where its inputs are asked for.
        precision: how the weights are stored.
        elsewhere: names of parameters that are given at every call, and stored by the caller.
    """

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        *,
        scorer: NoveltyScorer | None,
        head: Layer | None,
        precision: str,
        elsewhere: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__()
        self.model = model
        self.likelihood, self.head = likelihood, head
        self.scorer = scorer
        own = {name: one.detach() for name, one in model.named_parameters() if name not in elsewhere}
        stored = own if precision != "float32" else {}
        self.weights = StoredWeights(stored, precision)
        for name in {*stored, *elsewhere}:
            _empty(model, name)

    def outputs(self, batch: Batch, parameters: Mapping[str, Tensor]) -> Tensor:  # -> (N, C)
        """Return the outputs with these parameters, and the stored ones, in place of the model's."""
        state = {**self.weights.restored(), **parameters}
        found = functional_call(self.model, state, batch.args, batch.kwargs) if state else self._plain(batch)
        return self.likelihood.check_outputs(read_outputs(found))

    def see(self, batch: Batch, parameters: Mapping[str, Tensor]) -> Seen:
        """Return the outputs and what else a forward pass shows."""
        calls: list[Tensor] = []

        def hook_of(name: str, layer: Layer) -> Callable[..., None]:
            def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
                calls.append(layer.rule.inputs(module, layer.rule.argument(module, args, kwargs))[0, :, 0])

            return hook

        with hooked({} if self.head is None else {self.head.name: self.head}, hook_of):
            if self.scorer is None:
                outputs, novelty = self.outputs(batch, parameters), None
            else:
                with self.scorer.watching(batch) as pooled:
                    outputs = self.outputs(batch, parameters)
                novelty = self.scorer.novelty_of(pooled, outputs)
        return Seen(outputs, calls[0] if calls else None, novelty)

    def _plain(self, batch: Batch) -> Any:
        return self.model(*batch.args, **batch.kwargs)


def _empty(model: nn.Module, name: str) -> None:
    """Put an empty parameter in the place of one whose values are stored elsewhere."""
    path, _, last = name.rpartition(".")
    module = model.get_submodule(path)
    parameter = module._parameters[last]
    assert parameter is not None
    module._parameters[last] = nn.Parameter(parameter.detach().new_empty(0), requires_grad=False)
