"""What a fit sums for novelty while it reads every example once: moments of all layers and of the classes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from infoform.common.files import under
from infoform.common.processes import Processes
from infoform.likelihoods import Likelihood
from infoform.network.batches import Batch
from infoform.network.coverage import ordinary_layers
from infoform.novelty.known_inputs import KnownInputs, calibrated, unit_length
from infoform.novelty.left_out import ExampleRows, LeftOut
from infoform.novelty.moments import WIDE, MomentSums, example_weights
from infoform.novelty.pooled import PooledInputs, pooling
from infoform.novelty.ranks import choose_ranks

# rows that are of no layer; no module has such a name
OUTPUTS, LABELS, STRANGENESS = "outputs/", "labels/", "strangeness/"


class NoveltySums:
    """The sums of a fit; all layers with a rule count, also those that get no posterior."""

    def __init__(self, model: nn.Module, likelihood: Likelihood) -> None:
        self._layers = ordinary_layers(model)
        self._likelihood = likelihood
        self._moments = {name: MomentSums() for name in self._layers}
        self._classes = MomentSums()
        self._head: str | None = None
        self._left_out = LeftOut()
        self._pooled: PooledInputs | None = None
        self.excluded: set[str] = set()  # layers that have no row for each example, though it may look so
        self.finished = False  # whether all examples of all processes are in the sums

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See the layers' inputs for the time of the block, in which `begin` and `add` go around each forward pass."""
        with pooling(self._layers, observe=self._head is None) as self._pooled:
            try:
                yield
            finally:
                self._pooled = None

    def begin(self, batch: Batch) -> None:
        """Get ready for a forward pass; does nothing where nobody watches."""
        if self._pooled is not None:
            self._pooled.begin(batch)

    def add(self, outputs: Tensor, targets: Tensor | None, numbers: Tensor) -> None:  # (N, *P, C), (N, ...), (N,)
        """Add the examples of the forward pass that was just made; does nothing where nobody watches.

        Args:
            outputs: Of the network.
            targets: Checked targets, where there are any.
            numbers: Of the examples among those of all processes.
        """
        if self._pooled is None:
            return
        outputs = outputs.detach()
        if self._head is None:
            self._head = self._pooled.last_layer(outputs)
            self._pooled.observe = self._head is None
            self._pooled.observed.clear()
        dtype = torch.promote_types(outputs.dtype, torch.float32)  # enough for moments
        pooled = {n: row.to(dtype) for n, row in self._pooled.rows(len(outputs)).items() if n not in self.excluded}
        rows: dict[str, Tensor] = dict(pooled)
        if outputs.dim() > 2:  # positions have classes of their own, an example has none
            strangeness = self._likelihood.example_strangeness(outputs)
            rows[OUTPUTS] = outputs.new_zeros(len(outputs), 1)
            if strangeness is not None:
                rows[STRANGENESS] = strangeness
        else:
            rows[OUTPUTS] = outputs
            labels = self._likelihood.known_classes(outputs, targets)
            if labels is not None:
                rows[LABELS] = labels
        self._pooled.calls.clear()
        examples = ExampleRows(numbers.cpu(), rows)
        left, returned = self._left_out.cut(examples)
        self._sum(examples, left)
        self._sum(ExampleRows.joined(returned))  # as one: a fit that was stopped sums them in the same way

    def gather(self, processes: Processes, *, device: torch.device) -> None:
        """Put the sums of all processes in the place of this one's; all must call it when the data are read."""
        left = self._left_out
        every = processes.gather((left.stride, self._head))
        heads = [one for _, one in every if one is not None]
        if len(set(heads)) > 1:
            raise ValueError(
                f"the network must have one last layer in all processes, got {sorted(set(heads))}; use "
                "FitOptions(novelty=False)."
            )
        self._head = heads[0] if heads else None
        returned = left.widen(max(stride for stride, _ in every))
        limit = min(processes.gather(left.limit))
        while sum(processes.gather(left.count)) > limit:
            returned += left.widen(2 * left.stride)
        self._sum(ExampleRows.joined(returned))
        processes.add_up([*self._moments.values(), self._classes], device=device)
        if processes.count > 1:
            found = [one for one in processes.gather(left.examples()) if len(one.numbers)]
            left.parts = [ExampleRows.joined(found)] if found else []
        self.finished = True

    def finish(self, *, budget: int, previous: KnownInputs | None = None) -> KnownInputs | None:
        """Return what is known of the inputs, in about so many bytes; None where no layer was called.

        Args:
            budget: Bytes that may be stored, about.
            previous: What was known before, which these examples are added to.

        Raises:
            ValueError: If numbers have overflowed.
        """
        if not any(one.count for one in self._moments.values()):  # of very few examples all may be left out
            self._sum(self._left_out.examples())
            self._left_out.parts = []
        moments = {name: one for name, one in self._moments.items() if one.count}
        if self._head is None or not moments or not self._classes.count:
            return previous
        for name, one in (*moments.items(), (self._head, self._classes)):
            if not one.is_finite():
                raise ValueError(
                    f"the inputs of layer '{name}' overflow when they are squared; scale them down, or use "
                    "FitOptions(novelty=False)."
                )
        by_class = self._classes.has_class_means if previous is None else len(previous.classes.counts) > 1
        heads = self._classes if by_class else self._classes.joined_classes()
        ranks = choose_ranks(
            {name: one.columns for name, one in moments.items()},
            head_columns=heads.columns,
            classes=heads.classes,
            budget=budget,
        )
        layers = {name: one.gaussian(rank=ranks.layers) for name, one in moments.items()}
        classes = heads.gaussian(rank=ranks.head, class_rank=ranks.classes)
        left = self._left_out.examples()
        rows = {name: one for name, one in left.rows.items() if name not in (OUTPUTS, LABELS, STRANGENESS)}
        outputs = left.rows.get(OUTPUTS, torch.zeros(0, 1))
        known = KnownInputs.uncalibrated(layers, self._head, classes)
        if previous is not None:
            known = previous.merged(known)
        return calibrated(known, rows, outputs, self._likelihood, strangeness=left.rows.get(STRANGENESS))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what another object needs to go on after a batch, as tensors and plain values."""
        left, values = self._left_out.state()
        tensors = {f"left..{key}": one for key, one in left.items()}
        tensors |= {f"classes..{key}": one for key, one in self._classes.state().items()}
        for name, one in self._moments.items():
            tensors |= {f"moments/{name}..{key}": value for key, value in one.state().items()}
        return tensors, {**values, "head": self._head, "finished": self.finished}

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Go on from the state of another object."""
        self._head, self.finished = values["head"], values["finished"]
        self._left_out.restore(under(tensors, "left.."), values)
        self._classes.restore(under(tensors, "classes.."))
        for name, one in self._moments.items():
            one.restore(under(tensors, f"moments/{name}.."))

    def _sum(self, examples: ExampleRows, left_out: Tensor | None = None) -> None:  # (n,)
        """Add examples to all moments, but for some of them."""
        if len(examples.numbers) == 0 or (left_out is not None and bool(left_out.all())):
            return
        rows, each = examples.rows, torch.ones(len(examples.numbers), dtype=torch.float64)
        if left_out is not None:
            each = each.masked_fill_(left_out, 0)
        narrow, wide = _Weighted.of(each), _Weighted.of(each * example_weights(examples.numbers))
        for name, moments in self._moments.items():
            if name in rows:
                own = wide if rows[name].shape[1] > WIDE else narrow
                own.add_to(moments, rows[name])
        if self._head is None or self._head not in rows:
            return
        labels, head = rows.get(LABELS), rows[self._head]
        if labels is not None and not self._classes.sums:
            self._classes.classes = rows[OUTPUTS].shape[1]
        own = wide if head.shape[1] > WIDE else narrow
        own.add_to(self._classes, head, labels, change=unit_length)


@dataclass(frozen=True)
class _Weighted:
    """The examples of a batch that count in some moments, and how much."""

    places: Tensor | None  # (n,) in the batch; None for all
    weights: Tensor  # (n,)

    @classmethod
    def of(cls, weights: Tensor) -> "_Weighted":  # (N,)
        places = weights.nonzero().squeeze(1)
        return cls(None, weights) if len(places) == len(weights) else cls(places, weights[places])

    def add_to(
        self,
        moments: MomentSums,
        rows: Tensor,  # (N, D)
        labels: Tensor | None = None,  # (N,)
        change: Callable[[Tensor], Tensor] = lambda rows: rows,
    ) -> None:
        """Add the rows of these examples, changed, to moments."""
        if len(self.weights) == 0:
            return
        if self.places is not None:
            places = self.places.to(rows.device)
            rows, labels = rows.index_select(0, places), None if labels is None else labels[places.to(labels.device)]
        moments.add(change(rows), self.weights, labels)
