"""A function of the user's own that gives a loader: `loaders.py:train` or `package.module:train`."""

from collections.abc import Iterable, Iterator

from torch.utils.data import DataLoader, Dataset, IterableDataset

from infoform.cli.mistakes import Mistake
from infoform.cli.references import describe_failure, find_object
from infoform.cli.sources.base import Data, Reading, dataset_loader
from infoform.common.progress import known_length
from infoform.records.fit import DataFacts

OPTIONS = frozenset({"classes", "batch_size"})


def takes(spec: str) -> bool:
    place, colon, name = spec.rpartition(":")
    return bool(colon) and name.isidentifier() and (place.endswith(".py") or place.replace(".", "").isidentifier())


def read(spec: str, reading: Reading) -> Data:
    loader = find_object(spec, "--data")
    if callable(loader) and not isinstance(loader, Dataset | DataLoader):
        try:
            loader = loader()
        except Exception as error:
            raise Mistake(f"the function '{spec}' fails: {describe_failure(error)}.") from error
    if isinstance(loader, Dataset) and not isinstance(loader, IterableDataset):
        loader = dataset_loader(loader, reading.batch_size)
    if isinstance(loader, Iterator):
        raise Mistake(f"'{spec}' must give a loader that can be read more than once, got a {type(loader).__name__}.")
    if not isinstance(loader, Iterable) or isinstance(loader, str):
        raise Mistake(f"'{spec}' must give a loader, a list of batches or a Dataset, got a {type(loader).__name__}.")
    dataset = getattr(loader, "dataset", None)
    examples = known_length(dataset)
    classes = reading.classes or getattr(dataset, "classes", None)
    return Data(loader, examples, None, DataFacts(classes=None if classes is None else [str(name) for name in classes]))
