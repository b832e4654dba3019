"""Run an experiment, piece by piece, into one JSON, by one process or several; stop and resume."""

import json
import platform
import time
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from infoform.common.provenance import commit, peak_memory
from infoform.common.same_work import Difference, Identity, refusal
from infoform.experiments import get_experiment
from infoform.experiments.base import Experiment
from infoform.experiments.claims import Claims
from infoform.pages.numbers import setting
from infoform.records.study_result import Result

PAUSE = 1.0  # seconds, before looking again for a piece to do


def result_path(name: str, out: Path, *, quick: bool = False, full: bool = False) -> Path:
    """Return the file of a run: quick and full ones stand beside the default one."""
    return out / f"{name}{'-quick' if quick else '-full' if full else ''}.json"


def reproduce(
    name: str,
    *,
    quick: bool = False,
    full: bool = False,
    out: Path = Path("out/experiments"),
    cache: Path | None = None,
    progress: bool = True,
) -> Result:
    """Run the pieces that are missing, and return the result, which is also in `result_path(...)`.

    The file is written after every piece, so that a run stopped by Ctrl-C, or by a failing piece, goes on from there
    when it is called again; so does one that has got more pieces since, or fewer of those that were missing. Called by
    several processes at once, each does the pieces that no other has claimed.
    `cache` (default: a folder in `out`) keeps what pieces share and may be deleted.
    """
    if quick and full:
        raise ValueError("a run is either quick or full, got both; leave one out.")
    experiment = get_experiment(name)
    settings = experiment.settings(quick=quick, full=full)
    keys = list(experiment.pieces(settings))
    path = result_path(name, out, quick=quick, full=full)
    wanted = json.loads(json.dumps(asdict(settings)))
    claims = Claims(path)
    known: dict[str, Any] = {"commit": commit(), "versions": _versions(experiment.packages), "total": len(keys)}

    def so_far() -> Result:
        new = Result(name, wanted, settings.seed, len(keys))
        return _resume(path, new, keys, experiment.choices) if path.exists() else new

    def store(key: str, found: dict[str, Any], seconds: float) -> None:
        with claims.alone():
            before = replace(so_far(), **known)
            after = before.with_piece(key, found, seconds=seconds, peak_memory_bytes=peak_memory() or 0)
            ordered = {one: after.pieces[one] for one in keys if one in after.pieces}
            try:
                replace(after, pieces=ordered).save(path)
            except ValueError as error:
                raise ValueError(f"piece '{key}' of '{name}' must hold finite numbers only: {error}.") from error

    result = so_far()
    if result.complete:
        if Result.load(path) != result:  # a run whose list was cut short of what was still missing
            with claims.alone():
                result.save(path)
            claims.remove()
        return result
    cache = out / "cache" if cache is None else cache
    bar = Progress(
        TextColumn(name),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        disable=not progress,
    )
    with bar:
        task = bar.add_task("", total=len(keys))
        while not result.complete:
            with claims.alone():
                result = so_far()
                claimed = _next_piece(experiment, settings, keys, result, claims)
            bar.update(task, completed=len(result.pieces))
            if claimed is None:
                bar.update(task, description="waiting for other processes")
                time.sleep(0.0 if result.complete else PAUSE)
                continue
            key, claim = claimed
            with claim:
                bar.update(task, description=key)
                begun = time.perf_counter()
                found = experiment.run_piece(key, settings, cache=cache)
                store(key, found, time.perf_counter() - begun)
    claims.remove()
    return result


def _next_piece(
    experiment: Experiment[Any], settings: Any, keys: list[str], result: Result, claims: Claims
) -> tuple[str, IO[str]] | None:
    """Claim the first piece that is missing, has what it needs, and that no other process works on."""
    for key in keys:
        if key not in result.pieces and all(one in result.pieces for one in experiment.needs(key, settings)):
            claim = claims.claim(key)
            if claim is not None:
                return key, claim
    return None


def _resume(path: Path, new: Result, keys: list[str], choices: tuple[str, ...]) -> Result:
    """Return what the file has of a run; settings that only choose pieces may have come to choose more of them."""
    result = Result.load(path)
    more = result.pieces.keys() <= set(keys)
    differences = Identity(new.settings).differences(result.settings, ignored=choices if more else ())
    if differences:
        what = f"'{path}' was made with other settings"
        remedy = "move it away, or choose another folder with out="
        raise ValueError(refusal(what, differences, remedy=remedy, describe=_described))
    return replace(result, settings=new.settings, total=new.total)


def _described(difference: Difference) -> str:
    return f"{difference.name} was {setting(difference.earlier)}, is {setting(difference.now)}"


def _versions(packages: tuple[str, ...]) -> dict[str, str]:
    found = {package: version(package) for package in ("infoform", "torch", "numpy", *packages)}
    return {"python": platform.python_version(), **found}
