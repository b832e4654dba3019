"""A run: the folder that `fit` makes and the other verbs read and add to.

posterior.safetensors     the posterior; `tune` writes it again, with another τ
fit.json, tune.json, ...  the last record of each verb, see infoform.records
fit.options.yaml, ...     the options of that verb; `infoform fit --config` does the same again
trials.json               the trials of a search; an interrupted search goes on from them
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from infoform.cli.first_batch import try_first_batch
from infoform.cli.mistakes import Mistake
from infoform.cli.model_source import ModelSource
from infoform.cli.options import DataOptions, ModelOptions
from infoform.cli.record import Record
from infoform.cli.run_change import EARLIER
from infoform.cli.sources import Data, Reading, open_data
from infoform.cli.trust import check_trust
from infoform.laplace import Laplace
from infoform.likelihoods import Likelihood
from infoform.records import COMMANDS, FitResult, TuneResult, VerbRecord, read_record
from infoform.records.fit import DataFacts

LATER = (
    "update",
    "plan",
    "tune",
    "trials",
    "predict",
    "evaluate",
    "compare",
    "acquire",
    "export",
    "report",
)  # what `fit` removes


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

    @property
    def complete(self) -> bool:
        """Whether there is a posterior, and the record of how it was made."""
        return self.posterior.is_file() and (self.path / "fit.json").is_file()

    def give_up_results(self, record: Record, *, keep: bool) -> None:
        """Have what later verbs left go with this command, since the posterior that they used is replaced.

        Args:
            record: Of the command; the user is told what goes.
            keep: Whether results go to the folder of earlier ones; what an interrupted command left is removed.
        """
        assert record.change is not None
        results, number = [], self._next_earlier()
        for file in sorted(file for name in LATER for file in self.path.glob(f"{name}.*")):
            if keep and file.is_file() and not file.name.endswith((".part", ".outputs")):
                record.change.keep(file, number)
            else:
                record.change.remove(file)
            results += [] if file.name.endswith((".options.yaml", ".part", ".outputs")) else [file.name]
        if results and keep:
            place = self.path / EARLIER / str(number)
            record.note(f"{', '.join(results)} are of the earlier posterior, and lie in '{place}' now.")
        elif results:
            record.note(f"removed with the earlier posterior: {', '.join(results)}.")

    def _next_earlier(self) -> int:
        folder = self.path / EARLIER
        there = [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []
        return max(there, default=0) + 1

    def digests(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the digests of all data that are in the posterior, and hashes of some examples of each."""
        update = self.path / "update.json"
        latest = read_record(update, FitResult, COMMANDS["update"]) if update.is_file() else self.fit_record()
        data = latest.result.data
        return data.digests or (), data.samples or ()

    def plain_temperature(self) -> float | None:
        """Return the temperature that suits the network alone best, where `tune` has found one."""
        file = self.path / "tune.json"
        return read_record(file, TuneResult, COMMANDS["tune"]).result.plain_temperature if file.is_file() else None

    def tuned_on(self) -> str | None:
        """Return the validation data of the last `tune`, where it had any."""
        file = self.path / "tune.json"
        data = read_record(file, TuneResult, COMMANDS["tune"]).options.get("data") if file.is_file() else None
        return data if isinstance(data, str) else None

    def fit_record(self) -> VerbRecord[FitResult]:
        """Return what the fit wrote about itself."""
        if not self.path.is_dir():
            raise Mistake(f"there is no folder '{self.path}'; make a run by 'infoform fit {self.path} ...'.")
        file = self.path / "fit.json"
        if not self.complete:
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
        check_trust(record.result.model, model, path)
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
    outputs = try_first_batch(model, data, spec)
    classes = data.facts.classes
    if likelihood.one_of_many and classes is not None and len(classes) != outputs:
        shown = ", ".join(map(repr, classes[:4]))
        raise Mistake(
            f"the network has {outputs} outputs and '{spec}' {len(classes)} classes ({shown}"
            f"{', ...' if len(classes) > 4 else ''}); mend misspelt labels, or name a class for each output with "
            "--classes."
        )
    return data
