"""Run an experiment, piece by piece, into one JSON, by one process or several; stop and resume."""

import json
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from infoform.common.provenance import commit, peak_memory
from infoform.common.same_work import Difference, Identity, refusal
from infoform.experiments import get_experiment
from infoform.experiments.base import Pieces
from infoform.experiments.claims import Claims
from infoform.pages.numbers import setting
from infoform.records.study_result import Result

PAUSE = 1.0  # seconds, before looking again for a piece to do
COMPUTING = {  # module -> package whose version a result depends on
    "infoform": "infoform",
    "torch": "torch",
    "numpy": "numpy",
    "torchmetrics": "torchmetrics",
    "sklearn": "scikit-learn",
    "PIL": "pillow",
    "pytorchcv": "pytorchcv",
    "jax": "jax",
    "numpyro": "numpyro",
}


def result_path(name: str, out: Path, *, quick: bool = False, full: bool = False) -> Path:
    """Return the file of a run: quick and full ones stand beside the default one.

    Args:
        name: the experiment.
        out: the folder.
        quick: whether it is the small version.
        full: whether it is all that the paper did.

    Returns:
        `out/NAME.json`, `out/NAME-quick.json` or `out/NAME-full.json`.

    Example:
        >>> result_path("toy", Path("results"), quick=True).name
        'toy-quick.json'
    """
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
    """Run the pieces of an experiment that are missing, and keep them in the file `result_path(...)`.

    The file is written after every piece. A run that was stopped by Ctrl-C, or by a piece that failed, goes on from
    there when this is called again; so does a run whose settings have come to choose more pieces, or fewer of those
    that were missing. Where several processes call this at once, each does the pieces that no other has claimed.

    Args:
        name: an experiment, a key of `EXPERIMENTS`.
        quick: a small version, in minutes.
        full: all that the paper did, where the default is less.
        out: the folder of the result's file.
        cache: a folder for what pieces share, `out/cache` where not given; it may be deleted.
        progress: whether a bar is shown on stderr.

    Returns:
        The complete result.

    Raises:
        ValueError: both `quick` and `full` are given, the file is of a run with other settings, or a piece found
            numbers that are not finite.

    Example:
        result = reproduce("toy-rank", quick=True, out=Path("out"))
        result.pieces["0"]["fixed"]["KFAC"]
    """
    if quick and full:
        raise ValueError("a run is either quick or full, got both; leave one out.")
    experiment = get_experiment(name)
    settings = experiment.settings(quick=quick, full=full)
    pieces = experiment.pieces(settings)
    keys = list(pieces)
    path = result_path(name, out, quick=quick, full=full)
    claims = Claims(path)
    code = commit()
    empty = Result(name, json.loads(json.dumps(asdict(settings))), settings.seed, len(keys))

    def so_far() -> Result:
        return _resume(path, empty, keys, settings.choices) if path.exists() else empty

    def store(key: str, outcome: dict[str, Any], seconds: float) -> None:
        with claims.alone():
            before = so_far()
            after = before.with_piece(key, outcome, seconds=seconds, peak_memory_bytes=peak_memory() or 0)
            ordered = {one: after.pieces[one] for one in keys if one in after.pieces}
            versions = {**before.versions, **_versions()}
            try:
                replace(after, pieces=ordered, commit=code, versions=versions, total=len(keys)).save(path)
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
                claimed = _next_piece(pieces, result, claims)
            bar.update(task, completed=len(result.pieces))
            if claimed is None:
                bar.update(task, description="waiting for other processes")
                time.sleep(0.0 if result.complete else PAUSE)
                continue
            key, claim = claimed
            with claim:
                bar.update(task, description=key)
                begun = time.perf_counter()
                outcome = experiment.run_piece(key, settings, cache=cache)
                store(key, outcome, time.perf_counter() - begun)
    claims.remove()
    return result


def _next_piece(pieces: Pieces, result: Result, claims: Claims) -> tuple[str, IO[str]] | None:
    """Claim the first piece that is missing, has what it needs, and that no other process works on."""
    for key in pieces:
        needs: Sequence[str] = pieces[key] if isinstance(pieces, Mapping) else ()
        if key not in result.pieces and all(needed in result.pieces for needed in needs):
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


def _versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that compute, as far as this process has imported them."""
    imported = [package for module, package in COMPUTING.items() if module in sys.modules]
    return {"python": platform.python_version(), **{package: version(package) for package in imported}}
