import pytest
import torch

import infoform
from export_cases import fitted


@pytest.fixture(scope="session")
def classifier() -> infoform.Laplace:
    """A network in float32 with a posterior over its last layer."""
    return fitted("classification", dtype=torch.float32)


@pytest.fixture(scope="session")
def all_layers() -> infoform.Laplace:
    """The same with a posterior over all layers."""
    return fitted("classification", layers=None, dtype=torch.float32)
