"""`infoform export`: a run's network and posterior as one file for another runtime."""

from pathlib import Path
from typing import Annotated, Any

import typer

from infoform.cli.mistakes import Mistake
from infoform.cli.options import DataOptions, ModelOptions, Output, PredictionSeed, Run, option
from infoform.cli.record import recorded
from infoform.records.export import ExportResult


def export(
    context: typer.Context,
    run: Run,
    *,
    to: Annotated[
        str,
        option(
            None, "FORMAT", "Format: onnx, pt2 (torch.export) or pte (ExecuTorch).", names="infoform.export:TARGETS"
        ),
    ],
    out: Annotated[Path | None, option("Output", "FILE", "The file; RUN/model.FORMAT where not given.")] = None,
    data: Annotated[
        str | None,
        option(
            "Data",
            "DATA",
            "Labelled validation data: the form gets a temperature and prediction sets of its own, and its loss is "
            "measured.",
            "--data",
            "-d",
        ),
    ] = None,
    kind: Annotated[
        str,
        option(
            None,
            "KIND",
            "Form: last-layer, samples, heads, or auto for last-layer where that alone has a posterior.",
            names="infoform.export:EXPORT_KINDS",
        ),
    ] = "auto",
    samples: Annotated[int | None, option(None, "M", "How many networks (16) or draws of a last layer (100).")] = None,
    precision: Annotated[
        str,
        option(None, "TYPE", "Stored weights: float32, float16 or int8.", names="infoform.export:PRECISIONS"),
    ] = "float32",
    coverage: Annotated[float, option(None, "SHARE", "Coverage of prediction sets or intervals.")] = 0.9,
    seed: PredictionSeed = None,
    model: ModelOptions,
    options: DataOptions,
    output: Output,
) -> None:
    """Write the network and its posterior as one file that runs without infoform.

    The file is run by its own runtime and compared with PyTorch before it appears. Its outputs have names:
    probabilities, entropy, novelty, prediction sets. It says inside what they mean.

        infoform export runs/a --to onnx
        infoform export runs/a --to onnx --kind samples --samples 16
        infoform export runs/a --to onnx --precision int8 --data val.csv

    A posterior over all layers has no such form of its own; with --data the error says what the others lose.
    """
    from infoform.cli.run_folder import OpenRun
    from infoform.common.checks import check_choice
    from infoform.export import TARGETS
    from infoform.network.batches import device_of, read_batch

    with recorded(context, output, folder=run if run.is_dir() else None) as record:
        check_choice("--to", to, tuple(TARGETS))
        opened = OpenRun.load(run, model, options)
        file = run / f"model.{to}" if out is None else out
        fit_data = opened.folder.fit_record().options.get("data")
        if data is None and not isinstance(fit_data, str):
            raise Mistake(
                "an export is traced with some inputs, and the run does not say where its data are; give --data."
            )
        example: Any = None
        if data is None:
            raw = next(iter(opened.read(str(fit_data), labelled=False).loader))
            batch = read_batch(raw, device_of(opened.laplace.model))
            example = batch.kwargs or batch.args
        done = opened.laplace.export(
            file,
            to=to,
            kind=kind,
            example=example,
            validation=None if data is None else opened.read(data, labelled=True).loader,
            samples=samples,
            precision=precision,
            coverage=coverage,
            seed=seed,
        )
        record.written.append(file)
        record.console.print(f"{done}.", soft_wrap=True, markup=False)
        record.result = ExportResult(
            file=str(file),
            to=to,
            kind=done.manifest["kind"],
            outputs=list(done.manifest["outputs"]),
            bytes=done.nbytes,
            seconds_per_example=done.seconds,
            plain_seconds_per_example=done.plain_seconds,
            differences=dict(done.differences),
            fingerprint=done.manifest["fingerprint"],
        )
