"""A function of the user's own that gives a loader: `loaders.py:train` or `package.module:train`."""

from collections.abc import Iterable, Iterator, Sized

from torch.utils.data import DataLoader, Dataset, IterableDataset

from infoform.cli.mistakes import Mistake
from infoform.cli.references import describe_failure, find_object
from infoform.cli.sources.base import Data, Reading, dataset_loader, split_names


def takes(spec: str) -> bool:
    place, colon, name = spec.rpartition(":")
    return bool(colon) and name.isidentifier() and (place.endswith(".py") or place.replace(".", "").isidentifier())


def read(spec: str, reading: Reading) -> Data:
    found = find_object(spec, "--data")
    if callable(found) and not isinstance(found, Dataset | DataLoader):
        try:
            found = found()
        except Exception as error:
            raise Mistake(f"the function '{spec}' fails: {describe_failure(error)}.") from error
    if isinstance(found, Dataset) and not isinstance(found, IterableDataset):
        found = dataset_loader(found, reading.batch_size)
    if isinstance(found, Iterator):
        raise Mistake(f"'{spec}' must give a loader that can be read more than once, got a {type(found).__name__}.")
    if not isinstance(found, Iterable) or isinstance(found, str):
        raise Mistake(f"'{spec}' must give a loader, a list of batches or a Dataset, got a {type(found).__name__}.")
    dataset = getattr(found, "dataset", None)
    examples = len(dataset) if isinstance(dataset, Sized) else None
    classes = split_names(reading.options.classes) or reading.facts.get("classes") or getattr(dataset, "classes", None)
    return Data(found, examples, None, {} if classes is None else {"classes": [str(name) for name in classes]})
