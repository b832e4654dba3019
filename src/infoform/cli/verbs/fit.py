"""`infoform fit`: measure the curvature of a trained network on its training data, and keep the posterior in a run."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from infoform.cli.mistakes import Mistake, say
from infoform.cli.options import DataOptions, DataSpec, ModelOptions, Output, PosteriorOptions, names_in
from infoform.cli.record import Record, recorded

if TYPE_CHECKING:
    from infoform.laplace import Laplace
    from infoform.priors import Prior

PRIOR_OPTIONS = ("prior", "prior_strength", "prior_precision")


def fit(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="Folder to make for this run.", metavar="RUN")],
    data: DataSpec,
    *,
    model: ModelOptions,
    options: DataOptions,
    likelihood: Annotated[
        str,
        typer.Option(
            "--likelihood",
            "-l",
            metavar="NAME",
            help="classification, multilabel or regression.",
            autocompletion=names_in("infoform.likelihoods:LIKELIHOODS"),
            rich_help_panel="Posterior",
        ),
    ] = "classification",
    noise: Annotated[
        float | None,
        typer.Option(
            metavar="SIGMA", help="Known noise of a regression; fitted where not given.", rich_help_panel="Posterior"
        ),
    ] = None,
    posterior: PosteriorOptions,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Choose the ranks of inf within 48MB, say, after the fit.", rich_help_panel="Posterior"
        ),
    ] = None,
    keep_curvature: Annotated[
        bool,
        typer.Option(
            "--keep-curvature",
            help="Save all that was measured: for --update, and `plan --memory` later.",
            rich_help_panel="Output",
        ),
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write here every minute; the same command goes on from there when it was killed.",
            rich_help_panel="Output",
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="What the fit may take beside model and data, as 2GB: layers in groups, with passes of their own.",
            rich_help_panel="Posterior",
        ),
    ] = None,
    offload: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE", help="A device, or a folder, that takes what was measured.", rich_help_panel="Posterior"
        ),
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Add these data to the run's posterior.", rich_help_panel="Posterior")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a posterior that is there.", rich_help_panel="Output")
    ] = False,
    output: Output,
) -> None:
    """Fit a posterior over the weights of a trained network.

    Give the data it was trained on. The network is a function in a Python file that returns it, and its weights a
    file; RUN is a folder that is made, and that the other verbs work on.

    A table whose column 'species' is the class:

        infoform fit runs/a --model model.py:net --weights net.safetensors \\
            --data train.csv --target species

    A folder with one folder of images a class:

        infoform fit runs/b -m model.py:net -w net.pt -d photos/train \\
            --image-size 224 --image-mean 0.485,0.456,0.406 \\
            --image-std 0.229,0.224,0.225

    Regression on the arrays 'x' and 'y' of a file, in at most 2 MB:

        infoform fit runs/c -m model.py:net -w net.pt -d train.npz \\
            --likelihood regression --memory 2MB

    Your own loader; the last layers only:

        infoform fit runs/d -m my.package:net -d my.package:train_loader \\
            --layers 'head.*'

    A fit of hours, which may be killed and started again, in little memory:

        infoform fit runs/e -m model.py:net -w net.pt -d photos/train \\
            --checkpoint runs/e.part --max-memory 2GB

    Next: infoform tune RUN --data VALIDATION
    """
    from infoform.cli.run_folder import RunFolder

    folder = RunFolder(run)
    if folder.posterior.exists() and not (force or update):
        raise Mistake(f"'{run}' holds a posterior; give --force to replace it, --update to add to it, or another RUN.")
    with recorded(context, output, folder=run, name="update" if update else "fit") as record:
        how = {"checkpoint": checkpoint, "max_memory": max_memory, "offload": offload, "progress": record.progress}
        try:
            if update:
                laplace, about = _updated(folder, data, model, options, how)
            else:
                laplace, about = _fitted(data, model, options, likelihood, noise, posterior, how, record)
        except KeyboardInterrupt:
            if checkpoint is not None:
                say(f"the fit so far is in '{checkpoint}'; the same command goes on from there.", style="yellow")
            raise
        if memory is not None:
            laplace.shrink(memory)
        laplace.save(folder.posterior, curvature=keep_curvature or update)
        record.written.append(folder.posterior)
        if checkpoint is not None and not any(checkpoint.iterdir()):
            checkpoint.rmdir()  # the fit is saved, and has removed what was in it
        folder.forget_results()  # they were another posterior's
        _report(laplace, about, record)


def _fitted(
    data: str,
    model: ModelOptions,
    options: DataOptions,
    likelihood: str,
    noise: float | None,
    posterior: PosteriorOptions,
    how: dict[str, Any],
    record: Record,
) -> tuple["Laplace", dict[str, Any]]:
    from infoform.cli.model_source import ModelSource
    from infoform.cli.run_folder import read_for
    from infoform.laplace import Laplace
    from infoform.likelihoods import Regression, get_likelihood
    from infoform.options import Settings

    source = ModelSource.given(model)
    chosen = get_likelihood(likelihood)
    if noise is not None:
        if not isinstance(chosen, Regression):
            raise Mistake(f"--noise is for regression, got --likelihood {likelihood}; leave it out.")
        chosen = Regression(noise)
    network = source.load(model.device)
    flat = asdict(posterior) | {"rank": read_rank(posterior.rank)}
    precision = posterior.prior_precision
    settings = Settings.from_flat({name: value for name, value in flat.items() if name not in PRIOR_OPTIONS})
    laplace = Laplace(
        network,
        chosen,
        structure=settings.structure,
        prior=_prior(posterior, settings.structure.default_prior(chosen)),
        layers=settings.layers,
        fit_options=settings.fit,
        seed=settings.seed,
    )
    if precision is not None:
        laplace.prior_precision = precision
    if source.weights is None:
        record.note("no --weights given: the weights are those that the factory gives.")
    opened = read_for(network, data, options, chosen.name, {}, labelled=True)
    laplace.fit(opened.loader, **how)
    return laplace, {"model": asdict(source), "data": {"source": data, "facts": opened.facts}}


def _prior(posterior: PosteriorOptions, default: str) -> "str | Prior | None":
    """Return the prior that the options name; None for the default one."""
    from infoform.options import PRIOR_RANK
    from infoform.priors import Activation

    name = posterior.prior or default
    if posterior.prior_strength is not None and name != Activation.name:
        raise Mistake(f"--prior-strength is of the activation prior, got the {name} one; add --prior activation.")
    if posterior.prior_strength is None and (posterior.prior_rank == PRIOR_RANK or name != Activation.name):
        return posterior.prior
    return Activation(rank=posterior.prior_rank, strength=posterior.prior_strength)


def _updated(
    folder: Any,
    data: str,
    model: ModelOptions,
    options: DataOptions,
    how: dict[str, Any],
) -> tuple["Laplace", dict[str, Any]]:
    from infoform.cli.run_folder import OpenRun

    earlier = folder.fit_record()["result"]
    run = OpenRun.load(folder.path, model, options)
    if not run.has_curvature:
        raise Mistake(f"--update needs a run that was fitted with --keep-curvature, and '{folder.path}' was not.")
    opened = run.read(data, labelled=True)
    run.laplace.fit(opened.loader, update=True, **how)
    return run.laplace, {"model": earlier["model"], "data": {"source": data, "facts": earlier["data"]["facts"]}}


def _report(laplace: "Laplace", about: dict[str, Any], record: Record) -> None:
    from rich.table import Table

    from infoform.cli.costs import by_rank, spectrum, structures, weight_bytes
    from infoform.common.bytes import show_bytes
    from infoform.planner import plan

    planned = plan(laplace)
    table = Table("layer", title=f"Posterior ({laplace.structure.label}, prior {laplace.prior.name})")
    for head in ("shape", "rank", "bytes", "energy kept"):
        table.add_column(head, justify="right")
    for layer in planned.layers:
        kept = "" if layer.kept is None else f"{layer.kept:.1%}"
        rank = "" if layer.rank is None else str(layer.rank)
        table.add_row(layer.name, "×".join(map(str, layer.shape)), rank, show_bytes(layer.nbytes), kept)
    record.console.print(table)
    covered = [row for row in laplace.coverage() if row.covered]
    fixed = [row for row in laplace.coverage() if not row.covered]
    assert laplace.num_data is not None
    text = f"{laplace.num_data:,.0f} examples, {len(covered)} parameters with a posterior, {len(fixed)} held fixed"
    record.console.print(f"{text}; {show_bytes(planned.total_bytes)} in all.")
    for reason in sorted({row.reason for row in fixed}):
        record.console.print(f"held fixed: {reason}", markup=False)
    layers = [{**asdict(layer), "spectrum": spectrum(laplace, layer.name)} for layer in planned.layers]
    record.result = {
        **about,
        "likelihood": laplace.likelihood.name,
        "settings": laplace.settings.flat(),
        "prior": laplace.prior.name,
        "prior_precision": laplace.prior_precision,
        "num_data": laplace.num_data,
        "noise": laplace.noise,
        "total_bytes": planned.total_bytes,
        "kept": planned.kept,
        "weight_bytes": weight_bytes(laplace),
        "layers": layers,
        "by_rank": by_rank(layers),
        "structures": structures(laplace, planned),
        "coverage": list(laplace.coverage()),
    }


def read_rank(text: str) -> Any:
    try:
        rank = yaml.safe_load(text)
    except yaml.YAMLError:
        rank = text
    if isinstance(rank, bool) or not isinstance(rank, int | float | dict):
        raise Mistake(f"--rank must be a number of eigenpairs, a share as 0.05, or {{layer: number}}, got '{text}'.")
    return rank
