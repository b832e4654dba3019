"""The options that verbs share: one alias each, and one class for those that belong together.

Nothing here imports torch, so that help and completion are quick.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from infoform.cli.config_file import use_config

MAX_SEED = 2**63 - 1  # that torch takes


def option(panel: str | None, metavar: str | None, text: str, *flags: str, names: str = "", **more: Any) -> Any:
    """Return an option of the command line.

    Args:
        panel: the part of the help where it stands.
        metavar: what stands for its value in the help; None for a switch.
        text: what the help says.
        flags: its flags, where they are not made from its name.
        names: tables of the library with the names that it takes ("infoform.priors:PRIORS"), for completion.
        more: whatever else `typer.Option` takes.
    """
    if names:
        more["autocompletion"] = names_in(*names.split())
    return typer.Option(*flags, metavar=metavar, help=text, rich_help_panel=panel, **more)


def names_in(*tables: str) -> Callable[[str], list[str]]:
    """Return a completion by the names in tables of the library, which are read when they are asked for."""

    def complete(incomplete: str) -> list[str]:
        names: list[str] = []
        for table in tables:
            module, _, attribute = table.partition(":")
            names += getattr(import_module(module), attribute)
        return [name for name in names if name.startswith(incomplete)]

    return complete


def check_seed(seed: int | None) -> int | None:
    """Refuse seeds that torch does not take; a range in the option itself would fill the help."""
    if seed is not None and not 0 <= seed <= MAX_SEED:
        raise typer.BadParameter(f"a seed lies between 0 and {MAX_SEED}, got {seed}.")
    return seed


Run = Annotated[Path, typer.Argument(help="Folder of the run, made by `infoform fit`.", metavar="RUN")]
DataSpec = Annotated[
    str,
    option("Data", "DATA", "Folder of images, .csv or .parquet table, .npz, or loader.py:function.", "--data", "-d"),
]
Restart = Annotated[
    bool, option("Output", None, "Forget the predictions that an interrupted command has saved.", "--restart")
]
RANK = "Eigenpairs that each layer keeps: a number (100), a share (0.05) or {layer: number}."
STRUCTURES = "infoform.posteriors:STRUCTURES infoform.posteriors:PRESETS"
KINDS = "infoform.predicting.kinds:KINDS"
KINDS_AND_AUTO = "infoform.predicting.kinds:KINDS_AND_AUTO"
Storage = Annotated[
    str | None, option("Posterior", "DTYPE", "Number type of the stored posterior: float32, bfloat16 or uint8.")
]
MaxMemory = Annotated[
    str | None,
    option("Fit", "SIZE", "Memory for the fit beside model and data, such as 2GB; layers are fitted in groups."),
]
PredictionSeed = Annotated[int | None, option("Prediction", "N", "Seed of the random numbers.", callback=check_seed)]


@dataclass(frozen=True)
class Output:
    """How a verb is told things and tells them; every verb takes these."""

    json: Annotated[str | None, option("Output", "PATH", "Write the result as JSON to this file too; - prints it.")] = (
        None
    )
    config: Annotated[
        Path | None,
        option(
            "Output",
            "FILE",
            "Read options from this YAML file; those on the command line win.",
            callback=use_config,
            is_eager=True,
        ),
    ] = None
    quiet: Annotated[bool, option("Output", None, "Show no progress bars.", "--quiet", "-q")] = False
    debug: Annotated[bool, option("Output", None, "Show the traceback of an error.", "--debug")] = False


@dataclass(frozen=True)
class ModelOptions:
    """Where the network comes from; for what is not given, the verbs after `fit` take what the fit had."""

    model: Annotated[
        str | None,
        option(
            "Model",
            "FACTORY",
            "Function that returns the network: model.py:net or package.module:net.",
            "--model",
            "-m",
        ),
    ] = None
    weights: Annotated[
        Path | None,
        option("Model", "FILE", "Trained weights: .safetensors, or a state_dict from torch.save.", "--weights", "-w"),
    ] = None
    model_arg: Annotated[
        list[str] | None, option("Model", "NAME=VALUE", "Argument of that function; can be repeated.")
    ] = None
    device: Annotated[str, option("Model", "NAME", "cpu, cuda or mps; auto takes a GPU if there is one.")] = "auto"
    trust: Annotated[
        bool,
        option(
            "Model",
            None,
            "Run the code that the record of a run from elsewhere names.",
            "--trust",
            envvar="INFOFORM_TRUST",
            show_envvar=False,
        ),
    ] = False


@dataclass(frozen=True)
class DataOptions:
    """How data are read; for what is not given, the verbs after `fit` take what the fit had."""

    target: Annotated[
        str | None,
        option("Data", "NAME", "Where the targets are: column of a table (a,b for several), or array of an .npz."),
    ] = None
    inputs: Annotated[str | None, option("Data", "NAME", "Array of an .npz that holds the inputs.")] = None
    ignore: Annotated[
        str | None, option("Data", "NAMES", "Columns of a table that the network does not take: id,name.")
    ] = None
    classes: Annotated[
        str | None,
        option("Data", "NAMES", "Classes in the order of the network's outputs: cat,dog. Default: sorted by name."),
    ] = None
    divide_by: Annotated[
        float | None, option("Data", "NUMBER", "Divide the inputs of a table or .npz by this number, such as 255.")
    ] = None
    channels: Annotated[
        str | None,
        option("Data", "WHERE", "Channels of an .npz of images: first (the default), last, or none, which adds one."),
    ] = None
    image_size: Annotated[str | None, option("Data", "SIZE", "Resize images to 224 or 224x320 (height x width).")] = (
        None
    )
    image_mean: Annotated[
        str | None,
        option(
            "Data",
            "NUMBERS",
            "Subtract this: 0.485,0.456,0.406 from the channels of images or an .npz, from the columns of a table.",
            "--image-mean",
            "--mean",
        ),
    ] = None
    image_std: Annotated[
        str | None, option("Data", "NUMBERS", "Then divide by this: 0.229,0.224,0.225.", "--image-std", "--std")
    ] = None
    gray: Annotated[
        bool | None,
        option("Data", None, "Read images with one channel, or with three (the default).", "--gray/--colour"),
    ] = None
    batch_size: Annotated[
        int | None, option("Data", "N", "Examples in a batch. Default: 128, or as in the fit.", min=1)
    ] = None

    @property
    def given(self) -> list[str]:
        """Return the names of the options that have a value."""
        return [each.name for each in fields(self) if getattr(self, each.name) is not None]

    def filled(self, earlier: dict[str, Any]) -> "DataOptions":
        """Take what is not given from the options of an earlier run."""
        missing = {each.name: earlier.get(each.name) for each in fields(self) if getattr(self, each.name) is None}
        return replace(self, **missing)


@dataclass(frozen=True)
class PosteriorOptions:
    """What `infoform.Laplace` takes."""

    structure: Annotated[
        str,
        option(
            "Posterior",
            "NAME",
            "Form of the posterior: inf, diag, kfac, efb, full, auto (exact where small, else inf), by-layer, or as in "
            "the paper: inf-paper, efb-paper, okf-paper; or by layer, as {head: full, '*': inf}.",
            names=STRUCTURES,
        ),
    ] = "inf"
    rank: Annotated[str, option("Posterior", "K", RANK)] = "100"
    prior: Annotated[
        str | None,
        option(
            "Posterior",
            "NAME",
            "isotropic or activation. Default: activation for inf on a classifier, else isotropic.",
            names="infoform.priors:PRIORS",
        ),
    ] = None
    prior_rank: Annotated[int, option("Posterior", "K", "Directions of the activation prior.")] = 8
    prior_strength: Annotated[
        float | None,
        option("Posterior", "S", "Strength of the activation prior. Default: 30, and 1 once tuned by evidence."),
    ] = None
    prior_precision: Annotated[
        float | None, option("Posterior", "TAU", "Prior precision τ, until `infoform tune` chooses one.")
    ] = None
    layers: Annotated[
        list[str] | None,
        option(
            "Posterior",
            "PATTERN",
            "Layers that get a posterior, such as 'head.*', or not, such as '!head.*'; can be repeated. 'last' finds "
            "the last one, 'all' takes norms and embeddings, too. Default: all other layers that train.",
        ),
    ] = None
    fisher: Annotated[
        str,
        option(
            "Posterior",
            "KIND",
            "Estimate of the Fisher information: mc, exact or empirical.",
            names="infoform.likelihoods:FISHER_KINDS",
        ),
    ] = "mc"
    fisher_samples: Annotated[int, option("Posterior", "N", "Labels drawn for each example, with mc.")] = 1
    storage: Storage = None
    autocast: Annotated[
        str | None, option("Posterior", "DTYPE", "Number type of the forward passes: bfloat16 or float16.")
    ] = None
    seed: Annotated[int, option("Posterior", "N", "Seed of the labels that are drawn.", callback=check_seed)] = 0


def check_share(share: float | None) -> float | None:
    """Refuse what is no share between 0 and 1."""
    if share is not None and not 0 < share < 1:
        raise typer.BadParameter(f"a share lies between 0 and 1, as in 0.9, got {share:g}.")
    return share


@dataclass(frozen=True)
class PredictOptions:
    """How predictions are made."""

    kind: Annotated[
        str,
        option(
            "Prediction",
            "KIND",
            "How to predict: linear, mc or linear-mc; auto chooses by the number of outputs.",
            names=KINDS_AND_AUTO,
        ),
    ] = "auto"
    samples: Annotated[int, option("Prediction", "M", "How many networks, or outputs, are drawn.")] = 100
    link: Annotated[
        str,
        option(
            "Prediction",
            "NAME",
            "How logits become probabilities: mc, probit or bridge.",
            names="infoform.likelihoods:LINKS",
        ),
    ] = "mc"
    seed: PredictionSeed = None
