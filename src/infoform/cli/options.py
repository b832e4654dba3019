"""The options that verbs share, in groups; nothing here imports torch, so that help and completion are quick."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from infoform.cli.config_file import use_config

MAX_SEED = 2**63 - 1  # that torch takes


def names_in(*tables: str) -> Callable[[str], list[str]]:
    """Complete by names in the library's tables ("infoform.posteriors:STRUCTURES"), read when they are asked for."""

    def complete(incomplete: str) -> list[str]:
        names: list[str] = []
        for table in tables:
            module, _, attribute = table.partition(":")
            names += getattr(import_module(module), attribute)
        return [name for name in names if name.startswith(incomplete)]

    return complete


Run = Annotated[Path, typer.Argument(help="Folder of the run, made by `infoform fit`.", metavar="RUN")]
DataSpec = Annotated[
    str,
    typer.Option(
        "--data",
        "-d",
        metavar="DATA",
        help="Folder of images, .csv/.parquet table, .npz, or loader.py:function.",
        rich_help_panel="Data",
    ),
]

Restart = Annotated[
    bool,
    typer.Option(
        "--restart", help="Forget what an interrupted command has predicted so far.", rich_help_panel="Output"
    ),
]


@dataclass(frozen=True)
class Output:
    """How a verb is told things and tells them; every verb takes these."""

    json: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Write the result as JSON here too; - prints it.", rich_help_panel="Output"),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=use_config,
            is_eager=True,
            help="YAML file of options; those given here overrule it.",
            rich_help_panel="Output",
        ),
    ] = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.", rich_help_panel="Output")] = False
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel="Output")
    ] = False


@dataclass(frozen=True)
class ModelOptions:
    """Where the network comes from; what a run was fitted with, where not given."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="FACTORY",
            help="model.py:factory or package.module:factory; called without arguments, gives the network.",
            rich_help_panel="Model",
        ),
    ] = None
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights",
            "-w",
            metavar="FILE",
            help="Its trained weights: safetensors, or a state_dict saved by torch.save.",
            rich_help_panel="Model",
        ),
    ] = None
    model_arg: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Argument for the factory; can be repeated.", rich_help_panel="Model"),
    ] = None
    device: Annotated[
        str, typer.Option(metavar="NAME", help="cpu, cuda, mps; auto: a GPU if there is one.", rich_help_panel="Model")
    ] = "auto"


@dataclass(frozen=True)
class DataOptions:
    """How data are read; as the run's fit read them, where not given."""

    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Target: column of a table (a,b for several), or array of an .npz.",
            rich_help_panel="Data",
        ),
    ] = None
    inputs: Annotated[
        str | None, typer.Option(metavar="NAME", help="Array of inputs in an .npz.", rich_help_panel="Data")
    ] = None
    ignore: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Columns that are no inputs: id,name.", rich_help_panel="Data"),
    ] = None
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Names of the classes in the order of the network's outputs: cat,dog. Sorted, where not given.",
            rich_help_panel="Data",
        ),
    ] = None
    divide_by: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="Divide the inputs of an .npz or table, 255 say.", rich_help_panel="Data"),
    ] = None
    image_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Resize images to 224 or 224x320 (height x width).", rich_help_panel="Data"),
    ] = None
    image_mean: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS",
            help="Subtract from pixels, which lie in 0..1: 0.485,0.456,0.406.",
            rich_help_panel="Data",
        ),
    ] = None
    image_std: Annotated[
        str | None,
        typer.Option(metavar="NUMBERS", help="Divide pixels by it: 0.229,0.224,0.225.", rich_help_panel="Data"),
    ] = None
    gray: Annotated[
        bool | None,
        typer.Option("--gray/--colour", help="Images with one channel, or three (default).", rich_help_panel="Data"),
    ] = None
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Examples at a time; 128 where not given.", rich_help_panel="Data"),
    ] = None

    def filled(self, earlier: dict[str, Any]) -> "DataOptions":
        """Take what is not given from the options of an earlier run."""
        missing = {one.name: earlier.get(one.name) for one in fields(self) if getattr(self, one.name) is None}
        return replace(self, **missing)


@dataclass(frozen=True)
class PosteriorOptions:
    """What `infoform.Laplace` takes."""

    structure: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="inf, diag, kfac, efb, full, or the paper's: inf-paper, efb-paper, okf-paper.",
            autocompletion=names_in("infoform.posteriors:STRUCTURES", "infoform.posteriors:PRESETS"),
            rich_help_panel="Posterior",
        ),
    ] = "inf"
    rank: Annotated[
        str,
        typer.Option(
            metavar="K", help="Eigenpairs a layer: 100, a share 0.05, or {layer: K}.", rich_help_panel="Posterior"
        ),
    ] = "100"
    prior: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="isotropic or activation; where not given, activation for inf on a classifier.",
            autocompletion=names_in("infoform.priors:PRIORS"),
            rich_help_panel="Posterior",
        ),
    ] = None
    prior_rank: Annotated[
        int, typer.Option(metavar="K", help="Directions of the activation prior.", rich_help_panel="Posterior")
    ] = 8
    prior_strength: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Of the activation prior; where not given 30, and 1 once tuned by evidence.",
            rich_help_panel="Posterior",
        ),
    ] = None
    prior_precision: Annotated[
        float | None, typer.Option(metavar="TAU", help="Prior precision, before tuning.", rich_help_panel="Posterior")
    ] = None
    layers: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Layers with a posterior, as 'head.*'; can be repeated.",
            rich_help_panel="Posterior",
        ),
    ] = None
    fisher: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="mc, exact or empirical.",
            autocompletion=names_in("infoform.likelihoods:FISHER_KINDS"),
            rich_help_panel="Posterior",
        ),
    ] = "mc"
    fisher_samples: Annotated[
        int, typer.Option(metavar="N", help="Labels drawn an example, for mc.", rich_help_panel="Posterior")
    ] = 1
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="DTYPE", help="float32, bfloat16 or uint8 for what is stored.", rich_help_panel="Posterior"
        ),
    ] = None
    autocast: Annotated[
        str | None,
        typer.Option(metavar="DTYPE", help="bfloat16 or float16 forward passes.", rich_help_panel="Posterior"),
    ] = None
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, metavar="N", help="Of drawn labels.", rich_help_panel="Posterior")
    ] = 0


@dataclass(frozen=True)
class PredictOptions:
    """How predictions are made."""

    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="linear, mc or linear-mc.",
            autocompletion=names_in("infoform.predicting.predictor:KINDS"),
            rich_help_panel="Prediction",
        ),
    ] = "linear"
    samples: Annotated[
        int, typer.Option(metavar="M", help="Networks or logits drawn.", rich_help_panel="Prediction")
    ] = 100
    link: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Logits to probabilities: mc, probit or bridge.",
            autocompletion=names_in("infoform.likelihoods:LINKS"),
            rich_help_panel="Prediction",
        ),
    ] = "mc"
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_SEED, metavar="N", help="Of what is drawn.", rich_help_panel="Prediction"),
    ] = None
