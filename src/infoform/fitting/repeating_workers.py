"""Workers of a DataLoader that all give the same examples: an IterableDataset that does not share them out.

PyTorch runs a copy of the data set in each worker and takes batches in turns. Unless `__iter__` asks
`torch.utils.data.get_worker_info()`, W workers give every example W times, and a fit would count each of them W times.
"""

from collections.abc import Iterable
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from infoform.common.digest import update_digest

ROUNDS = 4  # of one batch from each worker, before the end of the data is waited for no longer


class RepeatingWorkers:
    """Raises once the workers of a loader have given the same batches in every round; costs nothing elsewhere."""

    def __init__(self, loader: Iterable[Any]) -> None:
        is_stream = isinstance(loader, DataLoader) and isinstance(loader.dataset, IterableDataset)
        self._workers = loader.num_workers if is_stream else 0  # type: ignore[attr-defined]
        self._same = self._workers > 1  # so far
        self._round: list[int] = []
        self._seen: list[int] = []  # the digest of every round

    def look(self, raw: Any) -> None:
        """Look at the next batch."""
        if not self._same:
            return
        self._round.append(update_digest(raw, 0))
        if len(self._round) == self._workers:
            self._same = len(set(self._round)) == 1
            self._seen.append(self._round[0])
            self._round = []
            if len(self._seen) >= ROUNDS and len(set(self._seen)) > 1:
                self.finish()

    def finish(self) -> None:
        """Raise if all rounds so far were of one batch, given by every worker."""
        if self._same and self._seen and not self._round:
            raise ValueError(
                f"each of the loader's {self._workers} workers must give examples of its own, and all gave the same "
                "batches, so that every example would count several times; share them out in the IterableDataset's "
                "__iter__ by torch.utils.data.get_worker_info(), or use num_workers=1."
            )
