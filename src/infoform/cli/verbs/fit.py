"""`infoform fit`: measure the curvature of a trained network on its training data, and save the posterior in a run."""

import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from infoform.cli.mistakes import Mistake, say
from infoform.cli.options import DataOptions, DataSpec, MaxMemory, ModelOptions, Output, PosteriorOptions, option
from infoform.cli.plain_yaml import read_yaml
from infoform.cli.record import Record, recorded
from infoform.common.whole_files import write_text
from infoform.records.fit import (
    CoveredParameter,
    DataFacts,
    DataSource,
    FitResult,
    FittedLayer,
    NetworkSource,
    PosteriorSettings,
)
from infoform.records.verb_record import VerbRecord

if TYPE_CHECKING:
    from rich.console import Console

    from infoform.cli.run_folder import RunFolder
    from infoform.fitting.checkpoint import Checkpoint
    from infoform.laplace import Laplace
    from infoform.priors import Prior

PRIOR_OPTIONS = ("prior", "prior_strength", "prior_precision")
LIKELIHOOD = "classification"  # where --likelihood is not given
SHOWN = 12  # classes
NAMED = 4  # parameters that are held fixed for the same reason
SMALL = 64 * 2**20  # bytes of a curvature that is saved without being asked for


def fit(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="Folder to make for this run.", metavar="RUN")],
    data: DataSpec,
    *,
    model: ModelOptions,
    options: DataOptions,
    likelihood: Annotated[
        str,
        option(
            "Posterior",
            "NAME",
            "Kind of task: classification, multilabel, regression, heteroscedastic (mean and log variance), poisson or "
            "negative-binomial (counts), or ordinal (three grades).",
            "--likelihood",
            "-l",
            names="infoform.likelihoods:LIKELIHOODS",
        ),
    ] = LIKELIHOOD,
    noise: Annotated[
        float | None,
        option("Posterior", "SIGMA", "Noise of a regression, where it is known. Default: fitted to the residuals."),
    ] = None,
    posterior: PosteriorOptions,
    memory: Annotated[
        str | None,
        option(
            "Posterior", "SIZE", "After the fit, choose the ranks of inf that keep most within this size, such as 48MB."
        ),
    ] = None,
    keep_curvature: Annotated[
        bool | None,
        option(
            "Output",
            None,
            "Save the whole curvature, for --update and `infoform plan RUN`. Default: where it takes up to 64 MB.",
            "--keep-curvature/--no-curvature",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        option("Fit", "FOLDER", "Save the progress here every minute; a fit that was stopped continues from it."),
    ] = None,
    max_memory: MaxMemory = None,
    offload: Annotated[
        str | None, option("Fit", "WHERE", "Device or folder that takes finished results out of that memory.")
    ] = None,
    update: Annotated[bool, option("Fit", None, "Add these data to the run's posterior.", "--update")] = False,
    force: Annotated[bool, option("Output", None, "Replace the run's posterior.", "--force")] = False,
    output: Output,
) -> None:
    """Fit a posterior over the weights of a trained network.

    Give the data that the network was trained on, a function in a Python file that returns the network, and the file
    of its weights. The result is a folder, RUN, which the other verbs work on.

    A table whose column 'species' is the class:

        infoform fit runs/a --model model.py:net --weights net.safetensors \\
            --data train.csv --target species

    A folder of images, with one folder inside for each class:

        infoform fit runs/b -m model.py:net -w net.pt -d photos/train \\
            --image-size 224 --image-mean 0.485,0.456,0.406 \\
            --image-std 0.229,0.224,0.225

    Regression on the arrays 'x' and 'y' of a file, in at most 2 MB:

        infoform fit runs/c -m model.py:net -w net.pt -d train.npz \\
            --likelihood regression --memory 2MB

    Your own loader, and a posterior over the last layers only:

        infoform fit runs/d -m my.package:net -d my.package:train_loader \\
            --layers 'head.*'

    A fit of hours, in little memory, that may be killed and started again:

        infoform fit runs/e -m model.py:net -w net.pt -d photos/train \\
            --checkpoint runs/e.part --max-memory 2GB

    Next: infoform tune RUN --data VALIDATION
    """
    from infoform.cli.run_folder import RunFolder

    folder = RunFolder(run)
    name, saved = ("update" if update else "fit"), _checkpoint(checkpoint)
    with recorded(
        context, output, folder=run, name=name, alone=True, after=None if saved is None else saved.discard
    ) as record:
        if folder.complete and not (force or update):
            raise Mistake(
                f"'{run}' holds a posterior; give --force to replace it, --update to add to it, or another RUN."
            )
        how = {"checkpoint": saved, "max_memory": max_memory, "offload": offload, "progress": record.progress}
        try:
            if update:
                laplace, network, source = _updated(folder, data, model, options, how, note=record.note)
            else:
                laplace, network, source = _fitted(data, model, options, likelihood, noise, posterior, how)
        except KeyboardInterrupt:
            if checkpoint is not None:
                say(f"the fit so far is in '{checkpoint}'; the same command goes on from there.", style="yellow")
            raise
        if memory is not None:
            laplace.shrink(memory)
        curvature = update or (_is_small(laplace) if keep_curvature is None else keep_curvature)
        laplace.save(record.stage(folder.posterior), curvature=curvature)
        if keep_curvature is None and not curvature:
            record.note(
                "the curvature is not saved, since it is large: for --update and `infoform plan RUN`, fit again "
                "with --keep-curvature."
            )
        record.written.append(folder.posterior)
        folder.give_up_results(record, keep=update)  # they were another posterior's
        record.result = _result(laplace, network, source)
        if update:
            write_text(record.stage(folder.path / "fit.json"), _as_it_is_now(folder, record.result).text())
        _show(record.result, record.console)
        _warn(laplace, network, source, record)


def _checkpoint(folder: Path | None) -> "Checkpoint | None":
    """Return the checkpoint of the fit, which stays until the posterior is in the run."""
    from infoform.fitting.checkpoint import Checkpoint

    return None if folder is None else Checkpoint(folder, lasting=True)


def _fitted(
    data: str,
    model: ModelOptions,
    options: DataOptions,
    likelihood: str,
    noise: float | None,
    posterior: PosteriorOptions,
    how: dict[str, Any],
) -> tuple["Laplace", NetworkSource, DataSource]:
    from infoform.cli.data_digest import data_digest
    from infoform.cli.model_source import ModelSource
    from infoform.cli.run_folder import read_for
    from infoform.cli.sources import check_options
    from infoform.cli.sources.function import takes as is_function
    from infoform.laplace import Laplace
    from infoform.likelihoods import get_likelihood
    from infoform.likelihoods.own_data import UntrainedWarning
    from infoform.network.last_layer import LAST
    from infoform.network.selection import ALL
    from infoform.options import Settings

    source = ModelSource.given(model)
    chosen = get_likelihood(likelihood)
    if noise is not None:
        if not chosen.takes_noise:
            raise Mistake(f"--noise is for regression, got --likelihood {likelihood}; leave it out.")
        chosen = chosen.with_noise(noise)
    network = source.load(model.device)
    flat = asdict(posterior) | {"rank": read_rank(posterior.rank)} | read_structure(posterior.structure)
    if posterior.layers in ([LAST], [ALL]):
        flat["layers"] = posterior.layers[0]
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
    check_options(options, [data])
    opened = read_for(network, data, options, chosen, DataFacts(), labelled=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrainedWarning)  # told at the end, with the names of classes
        laplace.fit(opened.loader, **how)
    # the loader of a function may be slow to read, and is read once more for an update alone
    if is_function(data):
        return laplace, source.record, DataSource(data, opened.facts)
    digest = data_digest(opened)
    return laplace, source.record, DataSource(data, opened.facts, (digest.total,), (digest.sample,))


def _is_small(laplace: "Laplace") -> bool:
    """Tell whether the whole curvature is small enough to be saved without being asked for."""
    from infoform.curvature.curvature import pack_curvature

    tensors = (tensor for layer in laplace.curvature.values() for tensor in pack_curvature(layer)[0].values())
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors) <= SMALL


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
    folder: "RunFolder",
    data: str,
    model: ModelOptions,
    options: DataOptions,
    how: dict[str, Any],
    *,
    note: Callable[[str], None],
) -> tuple["Laplace", NetworkSource, DataSource]:
    from infoform.cli.data_digest import data_digest
    from infoform.cli.run_folder import OpenRun
    from infoform.cli.sources import check_options
    from infoform.likelihoods.own_data import UntrainedWarning

    earlier = folder.fit_record().result
    run = OpenRun.load(folder.path, model, options)
    if not run.has_curvature:
        raise Mistake(
            f"--update needs the curvature, and '{folder.path}' was fitted without it; fit again with --keep-curvature."
        )
    check_options(options, [data])
    opened = run.read(data, labelled=True)
    totals, samples = folder.digests()
    digest = data_digest(opened, earlier=samples)
    if digest.total in totals:
        say(f"'{data}' is in '{folder.path}' already ({digest.total.partition(',')[0]}), and nothing was changed.")
        raise typer.Exit
    if digest.known:
        note(
            f"about {digest.known:.2g} of the examples in '{data}' are in '{folder.path}' already and now count "
            "twice; if they are the same ones, and not others that look alike, fit again without them."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrainedWarning)  # as for a fit
        run.laplace.fit(opened.loader, update=True, **how)
    now = DataSource(data, earlier.data.facts, (*totals, digest.total), (*samples, digest.sample))
    return run.laplace, earlier.model, now


def _as_it_is_now(folder: "RunFolder", updated: FitResult) -> VerbRecord[FitResult]:
    """Return the record of the fit with what the posterior is after an update: as many examples, as many bytes."""
    record = folder.fit_record()
    return replace(record, result=replace(updated, data=replace(updated.data, source=record.result.data.source)))


def _result(laplace: "Laplace", network: NetworkSource, source: DataSource) -> FitResult:
    """Return what the fit found, and what the posterior costs."""
    from infoform.cli.costs import by_rank, spectrum, structures, weight_bytes
    from infoform.planner import plan

    planned = plan(laplace)
    settings = laplace.settings.flat()
    assert laplace.num_data is not None
    layers = [FittedLayer(**asdict(layer), spectrum=spectrum(laplace, layer.name)) for layer in planned.layers]
    return FitResult(
        model=network,
        data=source,
        likelihood=laplace.likelihood.name,
        settings=PosteriorSettings(settings.pop("structure"), settings.pop("rank"), settings),
        prior=laplace.prior.name,
        prior_precision=laplace.prior_precision,
        num_data=laplace.num_data,
        noise=laplace.noise,
        total_bytes=planned.total_bytes,
        kept=planned.kept,
        layers=layers,
        weight_bytes=weight_bytes(laplace),
        training_scores=laplace.training_scores or None,
        by_rank=by_rank(layers),
        structures=structures(laplace, planned),
        coverage=tuple(CoveredParameter(**asdict(row)) for row in laplace.coverage()),
    )


def _show(result: FitResult, console: "Console") -> None:
    """Print the layers, and what has a posterior and what is held fixed."""
    from rich.table import Table

    from infoform.common.bytes import show_bytes

    table = Table("layer", title=f"Posterior ({result.settings.structure}, prior {result.prior})")
    for head in ("shape", "rank", "bytes", "energy kept"):
        table.add_column(head, justify="right")
    for layer in result.layers:
        kept = "" if layer.kept is None else f"{layer.kept:.1%}"
        rank = "" if layer.rank is None else str(layer.rank)
        table.add_row(layer.name, "×".join(map(str, layer.shape)), rank, show_bytes(layer.nbytes), kept)
    console.print(table)
    fixed = [row for row in result.coverage if row.structure is None]
    covered = len(result.coverage) - len(fixed)
    text = f"{result.num_data:,.0f} examples, {covered} parameters with a posterior, {len(fixed)} held fixed"
    console.print(f"{text}; {show_bytes(result.total_bytes)} in all.")
    if result.kept is not None:
        console.print(
            f"energy kept: {result.kept:.1%} of the information is stored as eigenpairs; the diagonal is exact at any "
            "rank, so little energy is no harm by itself. For more: --rank."
        )
    for reason in sorted({row.reason for row in fixed}):
        told = reason.replace('layers="all"', "--layers all").replace("layers=", "--layers")
        names = [row.parameter for row in fixed if row.reason == reason]
        shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
        console.print(f"{shown}: {told if told.startswith('held fixed') else f'held fixed, {told}'}", markup=False)
    if result.training_scores:
        scores = ", ".join(f"{name} {_score(name, value)}" for name, value in result.training_scores.items())
        console.print(f"the network alone on these data: {scores}.")
    classes = result.data.facts.classes
    if classes is not None:
        named = ", ".join(f"{place} {name}" for place, name in enumerate(classes[:SHOWN]))
        more = f", ... ({len(classes)} in all)" if len(classes) > SHOWN else ""
        console.print(f"classes by output: {named}{more}.", markup=False)


def _score(name: str, value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:.1%}" if name == "accuracy" else f"{value:.4g}"


def _warn(laplace: "Laplace", network: NetworkSource, source: DataSource, record: Record) -> None:
    """Say what looks wrong with the network on these data, and which options may be the cause."""
    troubles = laplace.training_troubles(source.facts.classes)
    if network.weights is None:
        unsure = " they may be random" if troubles else ""
        record.note(f"no --weights given: the weights are those that the factory gives{';' if unsure else ''}{unsure}.")
    for trouble in troubles:
        options = {"order": " See --classes.", "logits": ""}
        causes = " See --weights, --divide-by, --mean and --std."
        record.note(trouble + next((told for word, told in options.items() if word in trouble), causes))


def read_structure(text: str) -> dict[str, Any]:
    """Return the settings that `--structure` says: a name, or names by patterns of layers."""
    if not text.lstrip().startswith("{"):
        return {"structure": text}
    try:
        parts = read_yaml(text)
    except yaml.YAMLError as error:
        raise Mistake(
            f"--structure must be a name or {{pattern: name, '*': name}}, got '{text}': {' '.join(str(error).split())}."
        ) from None
    return {"structure": "by-layer", "parts": list(parts.items())}


def read_rank(text: str) -> Any:
    try:
        rank = read_yaml(text)
    except yaml.YAMLError:
        rank = text
    if isinstance(rank, bool) or not isinstance(rank, int | float | dict):
        raise Mistake(f"--rank must be a number of eigenpairs, a share as 0.05, or {{layer: number}}, got '{text}'.")
    return rank
