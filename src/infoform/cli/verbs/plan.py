"""`infoform plan`: what a posterior will cost, before a fit; where its bytes are best spent, after it."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infoform.cli.mistakes import Mistake
from infoform.cli.options import (
    RANK,
    STRUCTURES,
    DataOptions,
    MaxMemory,
    ModelOptions,
    Output,
    Storage,
    option,
)
from infoform.cli.record import Record, recorded
from infoform.records.plan import PlannedLayer, PlanResult

if TYPE_CHECKING:
    from torch import nn

    from infoform.planning.plan import Plan
    from infoform.posteriors import Structure


@dataclass(frozen=True)
class PlannedPosterior:
    """The posterior whose cost is asked for."""

    structure: Annotated[
        str | None,
        option(
            "Posterior", "NAME", "Form of the posterior: inf (default), diag, kfac, efb, full, ...", names=STRUCTURES
        ),
    ] = None
    rank: Annotated[str | None, option("Posterior", "K", RANK)] = None
    memory: Annotated[
        str | None, option("Posterior", "SIZE", "Choose the ranks that keep most within this size, such as 48MB.")
    ] = None
    storage: Storage = None


@dataclass(frozen=True)
class FitLimits:
    """The memory of the fit."""

    max_memory: MaxMemory = None
    offload: Annotated[
        bool, option("Fit", None, "Move each group's result out of that memory when it is finished.", "--offload")
    ] = False


def plan(
    context: typer.Context,
    run: Annotated[
        Path | None,
        typer.Argument(help="Folder of a fitted run; without it, the plan is for --model.", metavar="[RUN]"),
    ] = None,
    *,
    model: ModelOptions,
    data: Annotated[
        str | None, option("Data", "DATA", "Data whose first batch shows the size of an input.", "--data", "-d")
    ] = None,
    shape: Annotated[str | None, option("Data", "SHAPE", "Or the shape of one input: 3,224,224.")] = None,
    options: DataOptions,
    posterior: PlannedPosterior,
    limits: FitLimits,
    apply: Annotated[
        bool, option("Posterior", None, "Save the run's posterior again, with these ranks.", "--apply")
    ] = False,
    output: Output,
) -> None:
    """Tell what a fit will cost, or fit a posterior into a memory budget.

    Before a fit: the bytes of every layer, and, where the shape of an input is known, peak memory and cost:

        infoform plan --model model.py:net --shape 3,224,224 --batch-size 32
        infoform plan --model model.py:net --structure kfac
        infoform plan --model model.py:net --memory 48MB --storage bfloat16
        infoform plan --model model.py:net --shape 3,224,224 \\
            --max-memory 500MB --offload

    After a fit with --keep-curvature: the ranks that keep most within 2 MB:

        infoform plan runs/a --memory 2MB
        infoform plan runs/a --memory 2MB --apply
    """
    from infoform.cli.model_source import ModelSource

    with recorded(context, output, folder=run if run is not None and run.is_dir() else None, alone=apply) as record:
        if run is None:
            if apply:
                raise Mistake("--apply is for the plan of a run; give RUN, or leave it out.")
            network = ModelSource.given(model).load(model.device, shapes=True)
            planned = _before(network, _example(network, data, shape, options), posterior, limits, shape)
        else:
            fixed = {
                "data": data,
                "shape": shape,
                "rank": posterior.rank,
                "storage": posterior.storage,
                "max-memory": limits.max_memory,
            }
            for name, value in fixed.items():
                if value is not None:
                    raise Mistake(f"a fitted run has its own {name}; leave --{name} out.")
            planned = _after(run, model, options, posterior, record if apply else None)
        record.console.print(str(planned), end="", soft_wrap=True, markup=False)
        record.result = _result(planned)
        if apply and run is not None:
            record.written.append(run / "posterior.safetensors")


def _result(planned: "Plan") -> PlanResult:
    """Return the plan as the record keeps it."""
    layers = [PlannedLayer(**asdict(layer)) for layer in planned.layers]
    return PlanResult(
        **vars(planned) | {"layers": layers, "notes": list(planned.notes), "groups": [list(g) for g in planned.groups]},
        total_bytes=planned.total_bytes,
        kept=planned.kept,
        fits=planned.fits,
    )


def _example(network: "nn.Module", data: str | None, shape: str | None, options: DataOptions) -> Any:
    """Return a batch of inputs, the first of the data or zeros of the shape; None where neither is given."""
    import torch

    from infoform.cli.run_folder import read_for
    from infoform.cli.sources import check_options
    from infoform.cli.sources.base import BATCH_SIZE
    from infoform.cli.verbs.fit import LIKELIHOOD
    from infoform.likelihoods import get_likelihood
    from infoform.records.fit import DataFacts

    if shape is not None and data is not None:
        raise Mistake("--shape and --data exclude each other; give one.")
    if shape is not None:
        parameter = next((p for p in network.parameters() if p.is_floating_point()), torch.zeros(()))
        return torch.zeros((options.batch_size or BATCH_SIZE, *_sizes(shape))).to(parameter)
    if data is None:
        return None
    check_options(options, [data])
    opened = read_for(network, data, options, get_likelihood(LIKELIHOOD), DataFacts(), labelled=False)
    batch = next(iter(opened.loader))
    return batch[0] if isinstance(batch, tuple | list) else batch


def _before(
    network: "nn.Module", example: Any, posterior: PlannedPosterior, limits: FitLimits, shape: str | None
) -> "Plan":
    """Return the plan of a fit that has not been made."""
    from infoform.planner import plan as make_plan

    try:
        return make_plan(
            network,
            structure=_structure(posterior),
            memory=posterior.memory,
            example=example,
            **vars(limits),
        )
    except RuntimeError as error:
        if shape is None:
            raise
        reason = str(error).splitlines()[0]
        raise Mistake(f"the network does not take inputs of --shape {shape}: {reason}.") from error


def _structure(posterior: PlannedPosterior) -> "Structure":
    """Return the structure that the options name; those that it has no use for are left out."""
    from infoform.cli.verbs.fit import read_rank, read_structure
    from infoform.options import Settings

    if posterior.rank is not None and posterior.memory is not None:
        told = f"got --rank {posterior.rank} and --memory {posterior.memory}"
        raise Mistake(f"rank and memory exclude each other, {told}; give one.")
    given = {} if posterior.rank is None else {"rank": read_rank(posterior.rank)}
    given |= {} if posterior.storage is None else {"storage": posterior.storage}
    return Settings.from_flat({**Settings().flat(), **read_structure(posterior.structure or "inf"), **given}).structure


def _after(
    run: Path, model: ModelOptions, options: DataOptions, posterior: PlannedPosterior, record: Record | None
) -> "Plan":
    """Return the plan of a fitted run; with a record, the run's posterior is saved again with the ranks of the plan."""
    from infoform.cli.run_folder import OpenRun
    from infoform.planner import plan as make_plan

    opened = OpenRun.load(run, model, options)
    if not opened.has_curvature:
        raise Mistake(
            f"planning after a fit needs the curvature, and '{run}' was fitted without it; fit again with "
            "--keep-curvature."
        )
    if record is None:
        told = posterior.structure
        chosen = _structure(replace(posterior, memory=None)) if told is not None and told.startswith("{") else told
        return make_plan(opened.laplace, structure=chosen, memory=posterior.memory)
    if posterior.memory is None or posterior.structure is not None:
        raise Mistake("--apply saves ranks chosen by --memory for the run's own structure; give --memory alone.")
    planned = opened.laplace.shrink(posterior.memory)
    opened.laplace.save(record.stage(opened.folder.posterior), curvature=True)
    return planned


def _sizes(text: str) -> tuple[int, ...]:
    parts = text.replace("x", ",").split(",")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise Mistake(f"--shape must be whole numbers as in 3,224,224, got '{text}'.")
    return tuple(map(int, parts))
