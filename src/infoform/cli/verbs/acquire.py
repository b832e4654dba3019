"""`infoform acquire`: which inputs of a pool to have labelled next."""

from typing import Annotated

import typer

from infoform.cli.mistakes import Mistake
from infoform.cli.options import MAX_SEED, DataOptions, DataSpec, ModelOptions, Output, Restart, Run, names_in
from infoform.cli.record import recorded
from infoform.records.acquire import AcquireResult


def acquire(
    context: typer.Context,
    run: Run,
    data: DataSpec,
    *,
    number: Annotated[int, typer.Option("--number", "-n", metavar="N", help="How many to choose.")] = 10,
    by: Annotated[
        str,
        typer.Option(
            metavar="SCORE",
            help="variance or mutual_information.",
            autocompletion=names_in("infoform.acquisition:SCORES"),
            rich_help_panel="Prediction",
        ),
    ] = "variance",
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="linear-mc or mc; linear only with --each-alone.",
            autocompletion=names_in("infoform.predicting.predictor:KINDS"),
            rich_help_panel="Prediction",
        ),
    ] = "linear-mc",
    samples: Annotated[int, typer.Option(metavar="M", help="Networks drawn.", rich_help_panel="Prediction")] = 100,
    each_alone: Annotated[
        bool,
        typer.Option(
            "--each-alone",
            help="Take the best scores, though they may be near-duplicates of each other.",
            rich_help_panel="Prediction",
        ),
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_SEED, metavar="N", help="Of what is drawn.", rich_help_panel="Prediction"),
    ] = None,
    model: ModelOptions,
    options: DataOptions,
    restart: Restart = False,
    output: Output,
) -> None:
    """Choose what to label next.

    Those whose answers would tell most about the weights. The chosen are a batch: each counts what those before it
    would have told.

        infoform acquire runs/a --data pool.csv -n 20
        infoform acquire runs/b --data photos/new -n 100 --by mutual_information

    When they are labelled: infoform fit RUN --update --data LABELLED
    """
    from rich.table import Table

    from infoform.acquisition import acquire as choose
    from infoform.cli.partial import resumable
    from infoform.cli.run_folder import OpenRun
    from infoform.cli.verbs.predict import write_columns

    with recorded(context, output, folder=run if run.is_dir() else None) as record:
        opened = OpenRun.load(run, model, options)
        pool = opened.read(data, labelled=False)
        if pool.examples is not None and number > pool.examples:
            raise Mistake(f"--number must be at most the {pool.examples} inputs of '{data}', got {number}.")
        path = run / "acquire.csv"
        with resumable(context, path, opened, restart=restart) as parts:
            chosen = choose(
                opened.laplace,
                pool.loader,
                number,
                by=by,
                kind=kind,
                samples=samples,
                seed=seed,
                greedy=not each_alone,
                keep=parts.of("pool"),
                progress=record.progress,
            ).tolist()
        columns = {"position": chosen, "example": [pool.name(index) for index in chosen]}
        write_columns(path, columns)
        record.written.append(path)
        table = Table("", "example", title=f"Label these {len(chosen)} next")
        for place, name in enumerate(columns["example"][:20], start=1):
            table.add_row(str(place), name)
        record.console.print(table)
        if len(chosen) > 20:
            record.console.print(f"and {len(chosen) - 20} more in {path}.")
        record.result = AcquireResult(chosen, columns["example"], by)
