"""MLflow: a posterior as a `pyfunc` model, whose predictions are a DataFrame.

The network is kept whole beside the posterior, by `torch.save`: load it from stores that you trust.
"""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infoform.common.extras import needed_by
from infoform.integrations.tables import to_pandas
from infoform.laplace import Laplace

with needed_by("a model of MLflow needs"), warnings.catch_warnings():
    warnings.simplefilter("ignore")  # MLflow warns of hints in its own classes
    import mlflow.pyfunc

NETWORK, POSTERIOR = "network.pt", "posterior.safetensors"


class LaplaceModel(mlflow.pyfunc.PythonModel):  # type: ignore[misc, name-defined]
    """What MLflow loads and asks: inputs as an array or a DataFrame of numbers, predictions as a DataFrame.

    Example:
        ```python
        from infoform.integrations.mlflow import log_laplace
        import mlflow

        uri = log_laplace(laplace, name="digits").model_uri
        frame = mlflow.pyfunc.load_model(uri).predict(images.numpy())
        frame[["label", "confidence", "novelty"]]
        ```
    """

    def load_context(self, context: Any) -> None:
        network = torch.load(context.artifacts[NETWORK], weights_only=False)
        self.laplace = Laplace.load(context.artifacts[POSTERIOR], network)

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]  # MLflow checks hints
        dtype = next(self.laplace.model.parameters()).dtype
        return to_pandas(self.laplace.predict(torch.as_tensor(np.asarray(model_input)).to(dtype)))


def log_laplace(laplace: Laplace, *, name: str = "model", **options: Any) -> Any:
    """Log a posterior and its network to the active MLflow run.

    Args:
        laplace: A fitted posterior.
        name: Of the model in the run.
        options: Whatever else `mlflow.pyfunc.log_model` takes, such as `registered_model_name`.

    Returns:
        What MLflow says of the logged model; its `model_uri` is what `mlflow.pyfunc.load_model` takes.

    Example:
        ```python
        from infoform.integrations.mlflow import log_laplace

        uri = log_laplace(laplace, name="digits").model_uri
        ```
    """
    with tempfile.TemporaryDirectory() as folder:
        torch.save(laplace.model, Path(folder) / NETWORK)
        laplace.save(Path(folder) / POSTERIOR)
        artifacts = {file: str(Path(folder) / file) for file in (NETWORK, POSTERIOR)}
        requirements = options.pop("pip_requirements", ["infoform", "pandas"])
        return mlflow.pyfunc.log_model(
            name=name, python_model=LaplaceModel(), artifacts=artifacts, pip_requirements=requirements, **options
        )
