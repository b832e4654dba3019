"""Packages that an extra of infoform installs, and the sentence for one that is missing."""

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
}


def describe_missing(name: str | None) -> str | None:
    """Return which package a missing module is of and how to install it; None where no extra has it."""
    top = (name or "").partition(".")[0]
    by_package = {package: (package, extra) for package, extra in EXTRAS.values()}
    found = EXTRAS.get(top) or by_package.get(top)
    return None if found is None else f"{found[0]}, which is not installed: pip install 'infoform[{found[1]}]'."
