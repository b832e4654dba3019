"""What a report is made from: the folders of runs, and the results of experiments."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from infoform.records.study_result import Result

VERBS = ("fit", "update", "plan", "tune", "evaluate", "predict", "acquire")


@dataclass(frozen=True)
class Run:
    """What the verbs left in a run's folder."""

    name: str  # on the page
    path: Path
    records: Mapping[str, Mapping[str, Any]]  # by verb: options, result, notes, seconds, ...

    def result(self, verb: str) -> Mapping[str, Any]:
        """Return what a verb found; empty where it was not run."""
        found: Mapping[str, Any] = self.records.get(verb, {}).get("result", {})
        return found

    @property
    def fit(self) -> Mapping[str, Any]:
        """Return what the last fit found, an update after the first one and ranks applied by a plan included."""
        found = {**self.result("fit"), **self.result("update")}
        if not found or not self._applied:
            return found
        plan = self.result("plan")  # a later fit would have removed it
        planned = {layer["name"]: layer for layer in plan["layers"]}
        total = plan["total_bytes"]
        return {
            **found,
            "settings": {**found["settings"], "rank": "by layer"},
            "total_bytes": total,
            "kept": plan["kept"],
            "layers": [{**layer, **planned.get(layer["name"], {})} for layer in found["layers"]],
            "structures": [{**one, "bytes": total} if one["own"] else one for one in found.get("structures", [])],
        }

    @property
    def kind(self) -> str:
        """Return the likelihood: "classification", "multilabel" or "regression"."""
        if "likelihood" in self.fit:
            return str(self.fit["likelihood"])
        return "regression" if "rmse" in self.result("evaluate").get("scores", {}) else "classification"

    @property
    def outdated(self) -> list[str]:
        """Return the verbs whose result is of an earlier posterior: run before the last fit, update or tuning ended."""
        changed = [self._ended(verb) for verb in ("fit", "update", "tune") if verb in self.records]
        if self._applied:
            changed.append(self._ended("plan"))
        latest = max(changed, default=None)
        used = [verb for verb in ("evaluate", "predict", "acquire") if verb in self.records]
        return [verb for verb in used if latest is not None and self._began(verb) < latest]

    @property
    def _applied(self) -> bool:
        return bool(self.records.get("plan", {}).get("options", {}).get("apply"))

    def _began(self, verb: str) -> datetime:
        return datetime.fromisoformat(self.records[verb]["began"]) + timedelta(seconds=1)  # kept to the second

    def _ended(self, verb: str) -> datetime:
        record = self.records[verb]
        return datetime.fromisoformat(record["began"]) + timedelta(seconds=record["seconds"])


@dataclass(frozen=True)
class Study:
    """What `infoform reproduce` left."""

    name: str
    path: Path
    result: Result


def read_inputs(paths: Sequence[Path]) -> list[Run | Study]:
    """Read folders of runs, folders of results, and single JSON files."""
    found: list[Run | Study] = []
    for path in paths:
        found += _read_folder(path) if path.is_dir() else [_read_file(path)]
    if not found:
        raise ValueError("a report needs at least one RUN; give the folder that 'infoform fit' made.")
    return _with_own_names(found)


def _read_folder(path: Path) -> list[Run | Study]:
    records = {verb: _json(path / f"{verb}.json") for verb in VERBS if (path / f"{verb}.json").is_file()}
    for verb, record in records.items():
        if not _is_record(record):
            raise ValueError(
                f"'{path / verb}.json' was not written by 'infoform {verb}' or is damaged; run the verb again."
            )
    if records:
        return [Run(path.resolve().name, path, records)]
    studies = [file for file in sorted(path.glob("*.json")) if _is_study(_json(file))]
    if not studies:
        raise ValueError(
            f"'{path}' holds nothing to report: neither a run of 'infoform fit' nor results of 'infoform reproduce'; "
            "check the path."
        )
    return [_read_file(file) for file in studies]


def _read_file(path: Path) -> Run | Study:
    if not path.is_file():
        raise ValueError(f"there is no folder or file '{path}' to report on; make a run by 'infoform fit {path} ...'.")
    content = _json(path)
    if _is_study(content):
        return Study(path.stem, path, Result.load(path))
    if _is_record(content) and content["verb"] in VERBS:
        return Run(path.stem, path, {content["verb"]: content})
    raise ValueError(
        f"'{path}' holds neither the result of a verb nor of an experiment; give the folder of a run, or a JSON "
        "written by infoform."
    )


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ValueError(f"'{path}' cannot be read as JSON ({error}); run again the verb that wrote it.") from error


def _is_record(content: Any) -> bool:
    kinds = {"verb": str, "options": dict, "result": dict, "notes": list, "began": str, "seconds": int | float}
    return isinstance(content, dict) and all(isinstance(content.get(key), kind) for key, kind in kinds.items())


def _is_study(content: Any) -> bool:
    return isinstance(content, dict) and {"experiment", "settings", "pieces", "total"} <= set(content)


def _with_own_names(found: list[Run | Study]) -> list[Run | Study]:
    """Tell inputs of the same name apart by the folders they are in, or by numbers."""
    names = [one.name for one in found]
    renamed: list[Run | Study] = []
    for number, one in enumerate(found):
        name = one.name
        if names.count(name) > 1:
            name = f"{one.path.resolve().parent.name}/{name}"
            others = [f"{other.path.resolve().parent.name}/{other.name}" for other in found[:number]]
            name = f"{name} ({others.count(name) + 1})" if name in others else name
        renamed.append(type(one)(**{**vars(one), "name": name}))
    return renamed
