"""Novelty of new inputs, from one forward pass of the trained network."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, nn

from infoform.likelihoods import Likelihood
from infoform.network.batches import Batch
from infoform.network.last_layer import plain_outputs
from infoform.network.layer import Layer
from infoform.network.private_copy import ModelCopy
from infoform.novelty.calibration import Calibration, Scores
from infoform.novelty.known_inputs import KnownInputs
from infoform.novelty.pooled import PooledInputs, pooling
from infoform.prediction import Novelty


@dataclass(frozen=True)
class NoveltyScorer:
    """A network and what is known of its inputs; the network is left as found."""

    model: nn.Module
    layers: Mapping[str, Layer]  # all that have a rule
    likelihood: Likelihood
    known: KnownInputs

    def on(self, copy: ModelCopy) -> "NoveltyScorer":
        """Return this scorer with the modules of a copy of the model."""
        layers = {name: self.layers[name].on(copy) for name in self.known.layers if name in self.layers}
        return NoveltyScorer(copy.model, layers, self.likelihood, self.known)

    @contextmanager
    def watching(self, batch: Batch) -> Iterator[PooledInputs]:
        """Pool the layers' inputs in a forward pass of this batch that somebody makes in the block."""
        with pooling({name: self.layers[name] for name in self.known.layers if name in self.layers}) as pooled:
            pooled.begin(batch)
            yield pooled

    def scores(self, batch: Batch) -> Scores:
        """Return how strange the examples of a batch look, before calibration."""
        with self.watching(batch) as pooled:
            outputs = self.likelihood.arrange_outputs(plain_outputs(self.model, batch))
        return self.scores_of(pooled, outputs)

    def scores_of(self, pooled: PooledInputs, outputs: Tensor) -> Scores:  # (N, *P, C)
        """Return the same from what was pooled in a forward pass, and its outputs."""
        return self.known.scores(pooled.rows(outputs.shape[0]), outputs.detach(), self.likelihood)

    def novelty(self, batch: Batch) -> Novelty:
        """Return the novelty of the examples of a batch."""
        with self.watching(batch) as pooled:
            outputs = self.likelihood.arrange_outputs(plain_outputs(self.model, batch))
        return self.novelty_of(pooled, outputs)

    def novelty_of(self, pooled: PooledInputs, outputs: Tensor) -> Novelty:  # (N, *P, C)
        """Return the same from what was pooled in a forward pass, and its outputs."""
        dtype = outputs.dtype if outputs.dtype.itemsize >= 4 else None
        return self.calibration.novelty(self.scores_of(pooled, outputs), dtype=dtype or outputs.float().dtype)

    @property
    def calibration(self) -> Calibration:
        """Return the percentiles of known examples, which must be there."""
        assert self.known.calibration is not None
        return self.known.calibration
