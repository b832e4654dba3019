"""Packages that an extra of infoform installs, and the sentence for one that is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

EXTRAS = {  # module -> (package, extra)
    "sklearn": ("scikit-learn", "sklearn"),
    "lightning": ("lightning", "lightning"),
    "transformers": ("transformers", "huggingface"),
    "accelerate": ("accelerate", "huggingface"),
    "peft": ("peft", "peft"),
    "tensorboard": ("tensorboard", "tensorboard"),
    "matplotlib": ("matplotlib", "demo"),
    "optuna": ("optuna", "tune"),
    "pandas": ("pandas", "tables"),
    "pyarrow": ("pyarrow", "tables"),
    "PIL": ("Pillow", "images"),
    "plotly": ("plotly", "report"),
    "jinja2": ("jinja2", "report"),
    "markdown_it": ("markdown-it-py", "report"),
    "pytorchcv": ("pytorchcv", "imagenet"),
    "jax": ("jax", "hmc"),
    "numpyro": ("numpyro", "hmc"),
    "huggingface_hub": ("huggingface_hub", "hub"),
    "mlflow": ("mlflow-skinny", "mlflow"),
    "onnx": ("onnx", "onnx"),
    "onnxscript": ("onnxscript", "onnx"),
    "onnxruntime": ("onnxruntime", "onnx"),
    "executorch": ("executorch", "executorch"),
}


@contextmanager
def needed_by(what: str, *, extra: str | None = None) -> Iterator[None]:
    """Say what needs a package that an import in the block does not find, and how to install it.

    Args:
        what: What needs the package, with its verb: "the callback needs".
        extra: The extra that brings all that `what` needs; the package's own where not given.

    Raises:
        ModuleNotFoundError: The sentence.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = describe_missing(error.name, extra=extra)
        if missing is None:
            raise
        raise ModuleNotFoundError(f"{what} {missing}", name=error.name) from error


def describe_missing(name: str | None, *, extra: str | None = None) -> str | None:
    """Return which package a missing module is of and how to install it; None where no extra has it."""
    top = (name or "").partition(".")[0]
    by_package = {package: (package, extra) for package, extra in EXTRAS.values()}
    found = EXTRAS.get(top) or by_package.get(top)
    return (
        None if found is None else f"{found[0]}, which is not installed: pip install 'infoform[{extra or found[1]}]'."
    )
