"""`infoform acquire`: which inputs of a pool to have labelled next."""

from typing import Annotated, Any

import typer

from infoform.cli.mistakes import Mistake
from infoform.cli.options import (
    KINDS,
    DataOptions,
    DataSpec,
    ModelOptions,
    Output,
    PredictionSeed,
    Restart,
    Run,
    option,
)
from infoform.cli.record import recorded
from infoform.records.acquire import AcquireResult


def acquire(
    context: typer.Context,
    run: Run,
    data: DataSpec,
    *,
    number: Annotated[int, option(None, "N", "How many inputs to choose.", "--number", "-n")] = 10,
    by: Annotated[
        str,
        option(
            "Prediction",
            "SCORE",
            "What makes an input worth its label: variance or mutual_information.",
            names="infoform.acquisition:SCORES",
        ),
    ] = "variance",
    kind: Annotated[
        str,
        option("Prediction", "KIND", "How to predict: linear-mc or mc; linear with --each-alone.", names=KINDS),
    ] = "linear-mc",
    samples: Annotated[int, option("Prediction", "M", "How many networks are drawn.")] = 100,
    each_alone: Annotated[
        bool,
        option(
            "Prediction", None, "Choose the highest scores, even of inputs that are nearly the same.", "--each-alone"
        ),
    ] = False,
    seed: PredictionSeed = None,
    model: ModelOptions,
    options: DataOptions,
    restart: Restart = False,
    output: Output,
) -> None:
    """Choose the inputs to label next.

    It chooses inputs of DATA whose labels would tell most about the weights. They are chosen one after the other, and
    what the label of one would tell is not counted again for the next. It prints the score of each, the answer of the
    network, and why its label is worth having.

        infoform acquire runs/a --data pool.csv -n 20
        infoform acquire runs/b --data photos/new -n 100 --by mutual_information

    Next, when you have their labels: infoform fit RUN --update --data LABELLED
    """
    from rich.table import Table

    from infoform.acquisition import choose_inputs
    from infoform.cli.chosen_inputs import describe_choice
    from infoform.cli.partial import resumable
    from infoform.cli.run_folder import OpenRun
    from infoform.cli.sources import check_options
    from infoform.cli.verbs.predict import write_columns

    with recorded(context, output, folder=run if run.is_dir() else None) as record:
        opened = OpenRun.load(run, model, options)
        check_options(options, [data])
        pool = opened.read(data, labelled=False)
        if pool.examples is not None and number > pool.examples:
            raise Mistake(f"--number must be at most the {pool.examples} inputs of '{data}', got {number}.")
        path = run / "acquire.csv"
        with resumable(context, path, opened, record, restart=restart) as parts:
            found = choose_inputs(
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
            )
        chosen = found.positions.tolist()
        columns: dict[str, list[Any]] = {"position": chosen, "example": [pool.name(index) for index in chosen]}
        columns |= {name: [values[index] for index in chosen] for name, values in pool.ignored.items()}
        columns |= describe_choice(found, opened.classes)
        write_columns(record.stage(path), columns)
        record.written.append(path)
        table = Table("", "example", "score", "answer", "reason", title=f"Label these {len(chosen)} next")
        for place in range(min(20, len(chosen))):
            score, answer, reason = (columns[name][place] for name in ("score", "answer", "reason"))
            table.add_row(str(place + 1), columns["example"][place], f"{score:.3g}", answer, reason)
        record.console.print(table)
        if len(chosen) > 20:
            record.console.print(f"and {len(chosen) - 20} more in {path}.")
        record.result = AcquireResult(
            chosen, columns["example"], by, columns["score"], columns["answer"], columns["reason"]
        )
