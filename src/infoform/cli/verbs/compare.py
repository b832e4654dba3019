"""`infoform compare`: a run's posterior beside cheaper and other methods, on test data, and which one to take."""

import shutil
from typing import TYPE_CHECKING, Annotated

import typer

from infoform.cli.mistakes import Mistake
from infoform.cli.options import DataOptions, DataSpec, ModelOptions, Output, Restart, Run, option
from infoform.cli.record import recorded

if TYPE_CHECKING:
    from infoform.cli.sources import Data

PARTS = "compare.json.parts"


def compare(
    context: typer.Context,
    run: Run,
    data: DataSpec,
    *,
    validation: Annotated[
        str | None,
        option(
            "Data",
            "DATA",
            "What every method is tuned on, never the data of --data. Default: what `tune` had.",
            "--validation",
            "-v",
        ),
    ] = None,
    unknown: Annotated[
        list[str] | None,
        option("Data", "NAME=DATA", "Data unlike the training data, no labels needed; can be repeated."),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        option(
            "Method",
            "NAME",
            "Another method, trained on --train: mc-dropout, ensemble, swag, ...; can be repeated.",
            names="infoform.baselines:BASELINES",
        ),
    ] = None,
    train: Annotated[str | None, option("Data", "DATA", "Training data, for --baseline.")] = None,
    method: Annotated[
        list[str] | None,
        option(
            "Method",
            "NAME",
            "Compare this one beside the plain network; can be repeated. Default: all.",
            names="infoform.comparing:METHODS",
        ),
    ] = None,
    samples: Annotated[int, option("Method", "M", "How many networks are sampled.", min=1)] = 30,
    resamples: Annotated[int, option("Method", "B", "How many bootstrap samples intervals are from.", min=100)] = 1000,
    seed: Annotated[int, option("Method", "N", "Seed of the bootstrap and of baselines.")] = 0,
    model: ModelOptions,
    options: DataOptions,
    restart: Restart = False,
    output: Output,
) -> None:
    """Compare methods on test data, and say which one to take.

    The network alone, with a temperature, with a posterior of the last layer, of all layers, and with sampled
    networks are tuned on the same validation data and scored on the same test data, with intervals by a paired
    bootstrap, and with what they cost. An interrupted comparison goes on with the methods that are missing.

        infoform compare runs/a --data test.csv --validation val.csv
        infoform compare runs/b -d photos/test -v photos/val --unknown art=art

    Next: infoform report RUN
    """
    from infoform.cli.run_folder import OpenRun
    from infoform.comparing import compare_methods
    from infoform.records.compare_table import show

    with recorded(context, output, folder=run if run.is_dir() else None) as record:
        opened = OpenRun.load(run, model, options)
        opened.laplace.fit_seconds = opened.folder.fit_record().seconds
        parts = run / PARTS
        if restart and parts.is_dir():
            shutil.rmtree(parts)
        sets = _named(unknown or [])

        def read(spec: str | None) -> "Data | None":
            return None if spec is None else opened.read(spec, labelled=True)

        tuning = opened.folder.tuned_on() if validation is None else validation
        if validation is None and tuning is not None:
            record.note(f"every method is tuned on the data of tune, '{tuning}'; --validation names others.")
        tuned, trained = read(tuning), read(train)
        result = compare_methods(
            opened.laplace,
            opened.read(data, labelled=True).loader,
            unknown={name: opened.read(spec, labelled=False).loader for name, spec in sets.items()},
            baselines=baseline or [],
            val_loader=None if tuned is None else tuned.loader,
            train_loader=None if trained is None else trained.loader,
            methods=method,
            samples=samples,
            resamples=resamples,
            seed=seed,
            parts=parts,
            progress=record.progress,
        )
        record.result = result
        show(result, record.console)
    if parts.is_dir():
        shutil.rmtree(parts)


def _named(specs: list[str]) -> dict[str, str]:
    """Return unknown sets by name: NAME=DATA, or DATA alone."""
    found: dict[str, str] = {}
    for spec in specs:
        name, mark, rest = spec.partition("=")
        key, value = (name, rest) if mark else (spec, spec)
        if not value or key in found:
            raise Mistake(f"--unknown must be NAME=DATA, each name once, got '{spec}'.")
        found[key] = value
    return found
