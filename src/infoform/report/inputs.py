"""What a report is made from: the folders of runs, and the results of experiments."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from infoform.records import (
    COMMANDS,
    RESULTS,
    AcquireResult,
    CompareResult,
    EvaluateResult,
    FitResult,
    PlanResult,
    PredictResult,
    TuneResult,
    VerbRecord,
)
from infoform.records.fit import Precision
from infoform.records.study_result import Result
from infoform.records.verb_record import is_record, parse_record, read_json, read_record

R = TypeVar("R")


@dataclass(frozen=True)
class Run:
    """What the verbs left in a run's folder."""

    name: str  # on the page
    path: Path
    records: Mapping[str, VerbRecord[Any]]  # by the name of the file: fit, update, plan, tune, ...

    @property
    def fit(self) -> FitResult | None:
        """Return what the last fit found, an update after the first one and ranks applied by a plan included."""
        fit = self._result("update", FitResult) or self._result("fit", FitResult)
        plan = self._result("plan", PlanResult)
        if fit is None or plan is None or not self._applied:
            return fit
        planned = {layer.name: asdict(layer) for layer in plan.layers}  # a later fit would have removed the plan
        return replace(
            fit,
            settings=replace(fit.settings, rank="by layer"),
            total_bytes=plan.total_bytes,
            kept=plan.kept,
            layers=[replace(layer, **planned.get(layer.name, {})) for layer in fit.layers],
            structures=tuple(replace(size, bytes=plan.total_bytes) if size.own else size for size in fit.structures),
        )

    @property
    def tune(self) -> TuneResult | None:
        """Return what the tuning found; None where there was none."""
        return self._result("tune", TuneResult)

    @property
    def evaluate(self) -> EvaluateResult | None:
        """Return what the evaluation found; None where there was none."""
        return self._result("evaluate", EvaluateResult)

    @property
    def compare(self) -> CompareResult | None:
        """Return what the comparison of methods found; None where there was none."""
        return self._result("compare", CompareResult)

    @property
    def predict(self) -> PredictResult | None:
        """Return what the last predictions were; None where there were none."""
        return self._result("predict", PredictResult)

    @property
    def acquire(self) -> AcquireResult | None:
        """Return what is to be labelled next; None where nothing was chosen."""
        return self._result("acquire", AcquireResult)

    @property
    def task(self) -> str:
        """Return the name of the likelihood: "classification", "multilabel", "regression"."""
        if self.fit is not None:
            return self.fit.likelihood
        if self.evaluate is None:
            return "unknown task" if self.compare is None else self.compare.likelihood
        # evaluations of earlier versions do not tell it
        return self.evaluate.likelihood or ("classification" if self.evaluate.intervals is None else "regression")

    @property
    def prior_precision(self) -> Precision | None:
        """Return the prior precision after the last tuning."""
        last = self.tune or self.fit
        return None if last is None else last.prior_precision

    @property
    def noise(self) -> float | None:
        """Return the noise after the last tuning, where the likelihood has one."""
        last = self.tune or self.fit
        return None if last is None else last.noise

    def option(self, verb: str, name: str) -> str | None:
        """Return an option that a verb was given; None where it was not, or the verb was not run."""
        return self.records[verb].option(name) if verb in self.records else None

    @property
    def outdated(self) -> list[str]:
        """Return the verbs whose result is of an earlier posterior: run before the last fit, update or tuning ended."""
        changed = [self.records[verb].ended for verb in ("fit", "update", "tune") if verb in self.records]
        if self._applied:
            changed.append(self.records["plan"].ended)
        latest = max(changed, default=None)
        used = [verb for verb in ("evaluate", "compare", "predict", "acquire") if verb in self.records]
        return [verb for verb in used if latest is not None and self._began(verb) < latest]

    @property
    def _applied(self) -> bool:
        return "plan" in self.records and bool(self.records["plan"].options.get("apply"))

    def _began(self, verb: str) -> datetime:
        return self.records[verb].started + timedelta(seconds=1)  # kept to the second

    def _result(self, verb: str, kind: type[R]) -> R | None:
        result = self.records[verb].result if verb in self.records else None
        assert result is None or isinstance(result, kind)
        return result


@dataclass(frozen=True)
class Study:
    """What `infoform reproduce` left."""

    name: str
    path: Path
    result: Result


def read_inputs(paths: Sequence[Path]) -> list[Run | Study]:
    """Read folders of runs, folders of results, and single JSON files.

    Raises:
        ValueError: where there is nothing to report, or a file is damaged or something else, in one sentence.
    """
    inputs: list[Run | Study] = []
    for path in paths:
        inputs += _read_folder(path) if path.is_dir() else [_read_file(path)]
    if not inputs:
        raise ValueError("a report needs at least one RUN; give the folder that 'infoform fit' made.")
    return _with_distinct_names(inputs)


def _read_folder(path: Path) -> list[Run | Study]:
    records = {
        verb: read_record(path / f"{verb}.json", kind, COMMANDS[verb])
        for verb, kind in RESULTS.items()
        if (path / f"{verb}.json").is_file()
    }
    if records:
        return [Run(path.resolve().name, path, records)]
    studies = [file for file in sorted(path.glob("*.json")) if _is_study(read_json(file))]
    if not studies:
        raise ValueError(
            f"'{path}' holds nothing to report: neither a run of 'infoform fit' nor results of 'infoform reproduce'; "
            "check the path."
        )
    return [_read_file(file) for file in studies]


def _read_file(path: Path) -> Run | Study:
    if not path.is_file():
        raise ValueError(f"there is no folder or file '{path}' to report on; make a run by 'infoform fit {path} ...'.")
    content = read_json(path)
    if _is_study(content):
        return Study(path.stem, path, Result.load(path))
    if is_record(content) and content["verb"] in RESULTS:
        verb = content["verb"]
        return Run(path.stem, path, {verb: parse_record(content, RESULTS[verb], path=path, command=COMMANDS[verb])})
    raise ValueError(
        f"'{path}' holds neither the result of a verb nor of an experiment; give the folder of a run, or a JSON "
        "written by infoform."
    )


def _is_study(content: Any) -> bool:
    return isinstance(content, dict) and {"experiment", "settings", "pieces", "total"} <= set(content)


def _with_distinct_names(inputs: list[Run | Study]) -> list[Run | Study]:
    """Return the inputs with different names: those of the same name get their folder's name, or a number."""
    names = [each.name for each in inputs]
    renamed: list[Run | Study] = []
    for number, each in enumerate(inputs):
        name = each.name
        if names.count(name) > 1:
            name = f"{each.path.resolve().parent.name}/{name}"
            others = [f"{other.path.resolve().parent.name}/{other.name}" for other in inputs[:number]]
            name = f"{name} ({others.count(name) + 1})" if name in others else name
        renamed.append(replace(each, name=name))
    return renamed
