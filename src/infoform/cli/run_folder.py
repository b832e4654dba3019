"""A run: the folder that `fit` makes and the other verbs read and add to.

posterior.safetensors     the posterior; `tune` writes it again, with another τ
fit.json, tune.json, ...  the last record of each verb, see infoform.records
fit.options.yaml, ...     the options of that verb; `infoform fit --config` does the same again
trials.json               the trials of a search; an interrupted search goes on from them
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from infoform.cli.mistakes import Mistake
from infoform.cli.model_source import ModelSource
from infoform.cli.options import DataOptions, ModelOptions
from infoform.cli.sources import Data, Reading, open_data
from infoform.laplace import Laplace
from infoform.likelihoods import Likelihood
from infoform.network.batches import device_of, read_batch, read_outputs
from infoform.records import COMMANDS, FitResult, VerbRecord, read_record
from infoform.records.fit import DataFacts

LATER = ("update", "plan", "tune", "trials", "predict", "evaluate", "acquire", "report")  # what `fit` removes


@dataclass(frozen=True)
class RunFolder:
    """Where a run's files are, and what its fit was told."""

    path: Path

    @property
    def posterior(self) -> Path:
        return self.path / "posterior.safetensors"

    @property
    def trials(self) -> Path:
        return self.path / "trials.json"

    @property
    def trials_outputs(self) -> Path:
        """Where a search that is under way keeps the outputs of validation data."""
        return self.path / "trials.json.outputs"

    @property
    def trials_options(self) -> Path:
        return self.path / "trials.options.yaml"

    def forget_results(self) -> None:
        """Remove what later verbs left, since the posterior that they used is replaced."""
        for name in LATER:
            for file in self.path.glob(f"{name}.*"):
                shutil.rmtree(file) if file.is_dir() else file.unlink()

    def fit_record(self) -> VerbRecord[FitResult]:
        """Return what the fit wrote about itself."""
        if not self.path.is_dir():
            raise Mistake(f"there is no folder '{self.path}'; make a run by 'infoform fit {self.path} ...'.")
        file = self.path / "fit.json"
        if not file.is_file() or not self.posterior.is_file():
            raise Mistake(f"'{self.path}' holds no posterior; make one by 'infoform fit {self.path} ...'.")
        return read_record(file, FitResult, COMMANDS["fit"])


@dataclass(frozen=True)
class OpenRun:
    """A run with its network and posterior in memory, ready to read data as the fit did."""

    folder: RunFolder
    laplace: Laplace
    options: DataOptions
    facts: DataFacts

    @classmethod
    def load(cls, path: Path, model: ModelOptions, data: DataOptions) -> "OpenRun":
        folder = RunFolder(path)
        record = folder.fit_record()
        network = ModelSource.given(model, record.result.model).load(model.device)
        laplace = Laplace.load(folder.posterior, network)
        earlier = {name.replace("-", "_"): value for name, value in record.options.items()}
        return cls(folder, laplace, data.filled(earlier), record.result.data.facts)

    def read(self, spec: str, *, labelled: bool) -> Data:
        """Open data of the same form as the fit's."""
        return read_for(self.laplace.model, spec, self.options, self.laplace.likelihood, self.facts, labelled)

    @property
    def classes(self) -> list[str] | None:
        """Return the names of the classes, in the order of the network's outputs, where they are known."""
        return self.facts.classes

    @property
    def has_curvature(self) -> bool:
        """Tell whether the file holds the whole curvature, or the posterior alone."""
        try:
            return bool(self.laplace.curvature)
        except ValueError:
            return False


def read_for(
    model: nn.Module,
    spec: str,
    options: DataOptions,
    likelihood: Likelihood,
    facts: DataFacts,
    labelled: bool,
) -> Data:
    """Open data, and raise if the network does not take their first batch or has another number of classes."""
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    data = open_data(spec, Reading(options, likelihood, dtype, facts, labelled))
    outputs = _try_one_batch(model, data, spec)
    classes = data.facts.classes
    if likelihood.one_of_many and classes is not None and len(classes) != outputs:
        raise Mistake(
            f"the network has {outputs} outputs and '{spec}' {len(classes)} classes ({', '.join(classes[:4])}"
            f"{', ...' if len(classes) > 4 else ''}); name a class for each output with --classes."
        )
    return data


def _try_one_batch(model: nn.Module, data: Data, spec: str) -> int:
    """Return the number of outputs for the first batch."""
    raw = next(iter(data.loader), None)
    if raw is None:
        raise Mistake(f"'{spec}' gave no batches; check the data.")
    batch = read_batch(raw, device_of(model))
    try:
        with torch.no_grad():
            outputs = read_outputs(model(*batch.args, **batch.kwargs))
    except Exception as error:
        shapes = ", ".join(f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}" for x in batch.tensors())
        whole = any(not x.is_floating_point() for x in batch.tensors())
        remedy = "give --divide-by 1 to make them floating-point" if whole else "check data and network"
        raise Mistake(
            f"the network fails on the first batch of '{spec}' (inputs {shapes}): "
            f"{(str(error).splitlines() or [type(error).__name__])[0]}; {remedy}."
        ) from error
    return outputs.shape[1] if outputs.dim() > 1 else 1
