"""`infoform plan`: what a posterior will cost, before a fit; where its bytes are best spent, after it."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infoform.cli.mistakes import Mistake
from infoform.cli.options import DataOptions, ModelOptions, Output, names_in
from infoform.cli.record import recorded

if TYPE_CHECKING:
    from infoform.planning.plan import Plan
    from infoform.posteriors import Structure


def plan(
    context: typer.Context,
    run: Annotated[
        Path | None, typer.Argument(help="Folder of a fitted run; without it, the plan is of --model.", metavar="[RUN]")
    ] = None,
    *,
    model: ModelOptions,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            metavar="DATA",
            help="Data whose first batch shows the sizes of a fit.",
            rich_help_panel="Data",
        ),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(metavar="SHAPE", help="Or the shape of one input: 3,224,224.", rich_help_panel="Data"),
    ] = None,
    options: DataOptions,
    structure: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="inf (default), diag, kfac, efb, full, ...",
            autocompletion=names_in("infoform.posteriors:STRUCTURES", "infoform.posteriors:PRESETS"),
            rich_help_panel="Posterior",
        ),
    ] = None,
    rank: Annotated[
        str | None,
        typer.Option(metavar="K", help="Eigenpairs a layer: 100, or a share 0.05.", rich_help_panel="Posterior"),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Choose the ranks within 48MB, say.", rich_help_panel="Posterior"),
    ] = None,
    storage: Annotated[
        str | None, typer.Option(metavar="DTYPE", help="float32, bfloat16 or uint8.", rich_help_panel="Posterior")
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Part the fit into groups of layers that 2GB, say, hold.", rich_help_panel="Fit"
        ),
    ] = None,
    offload: Annotated[
        bool, typer.Option("--offload", help="What is finished leaves that memory.", rich_help_panel="Fit")
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Save the run's posterior with these ranks.", rich_help_panel="Posterior")
    ] = False,
    output: Output,
) -> None:
    """Tell what a fit will cost, or spend a memory budget after it.

    Before a fit: bytes by layer, peak memory, cost; with the shape of one input, for batches of 32:

        infoform plan --model model.py:net --shape 3,224,224 --batch-size 32
        infoform plan --model model.py:net --structure kfac
        infoform plan --model model.py:net --memory 48MB --storage bfloat16
        infoform plan --model model.py:net --shape 3,224,224 \\
            --max-memory 500MB --offload

    After it: the ranks that keep most in 2 MB (the run must have been fitted with --keep-curvature):

        infoform plan runs/a --memory 2MB
        infoform plan runs/a --memory 2MB --apply
    """
    with recorded(context, output, folder=run if run is not None and run.is_dir() else None) as record:
        if run is None:
            if apply:
                raise Mistake("--apply is for the plan of a run; give RUN, or leave it out.")
            limits = {"max_memory": max_memory, "offload": offload}
            planned = _before(model, data, shape, options, structure, rank, memory, storage, limits)
        else:
            wrong = {"--data": data, "--shape": shape, "--rank": rank, "--storage": storage, "--max-memory": max_memory}
            given = [flag for flag, value in wrong.items() if value is not None]
            if given:
                raise Mistake(f"a fitted run has its own {given[0].lstrip('-')}; leave {given[0]} out.")
            planned = _after(run, model, options, structure, memory, apply)
        record.console.print(str(planned), end="", soft_wrap=True, markup=False)
        record.result = {
            **asdict(planned),
            "total_bytes": planned.total_bytes,
            "kept": planned.kept,
            "fits": planned.fits,
        }
        if apply and run is not None:
            record.written.append(run / "posterior.safetensors")


def _before(
    model: ModelOptions,
    data: str | None,
    shape: str | None,
    options: DataOptions,
    structure: str | None,
    rank: str | None,
    memory: str | None,
    storage: str | None,
    limits: dict[str, Any],
) -> "Plan":
    import torch

    from infoform.cli.model_source import ModelSource
    from infoform.cli.run_folder import read_for
    from infoform.cli.sources.base import BATCH_SIZE
    from infoform.planner import plan as make_plan

    network = ModelSource.given(model).load(model.device, shapes=True)
    example: Any = None
    if shape is not None and data is not None:
        raise Mistake("--shape and --data exclude each other; give one.")
    if shape is not None:
        parameter = next((p for p in network.parameters() if p.is_floating_point()), torch.zeros(()))
        example = torch.zeros((options.batch_size or BATCH_SIZE, *_sizes(shape))).to(parameter)
    if data is not None:
        batch = next(iter(read_for(network, data, options, "classification", {}, labelled=False).loader))
        example = batch[0] if isinstance(batch, tuple | list) else batch
    try:
        return make_plan(
            network,
            structure=_structure(structure, rank, storage, memory),
            memory=memory,
            example=example,
            **limits,
        )
    except RuntimeError as error:
        if shape is None:
            raise
        reason = str(error).splitlines()[0]
        raise Mistake(f"the network does not take inputs of --shape {shape}: {reason}.") from error


def _structure(name: str | None, rank: str | None, storage: str | None, memory: str | None) -> "Structure":
    from infoform.cli.verbs.fit import read_rank
    from infoform.options import Settings

    if rank is not None and memory is not None:
        raise Mistake(f"rank and memory exclude each other, got --rank {rank} and --memory {memory}; give one.")
    given = {} if rank is None else {"rank": read_rank(rank)}
    given |= {} if storage is None else {"storage": storage}
    flat = {**Settings().flat(), "structure": name or "inf", **given}
    return Settings.from_flat(flat).structure


def _after(
    run: Path, model: ModelOptions, options: DataOptions, structure: str | None, memory: str | None, apply: bool
) -> "Plan":
    from infoform.cli.run_folder import OpenRun
    from infoform.planner import plan as make_plan

    opened = OpenRun.load(run, model, options)
    if not opened.has_curvature:
        raise Mistake(f"planning after a fit needs a run fitted with --keep-curvature, and '{run}' was not.")
    if not apply:
        return make_plan(opened.laplace, structure=structure, memory=memory)
    if memory is None or structure is not None:
        raise Mistake("--apply saves ranks chosen by --memory for the run's own structure; give --memory alone.")
    planned = opened.laplace.shrink(memory)
    opened.laplace.save(opened.folder.posterior, curvature=True)
    return planned


def _sizes(text: str) -> tuple[int, ...]:
    parts = text.replace("x", ",").split(",")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise Mistake(f"--shape must be whole numbers as in 3,224,224, got '{text}'.")
    return tuple(map(int, parts))
