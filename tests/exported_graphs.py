"""Graphs of fitted posteriors, as an export builds them, without a file."""

from typing import Any

import torch
from torch import Tensor, nn

from infoform.export.kinds import build_graph, find_head
from infoform.export.options import ExportOptions
from infoform.laplace import Laplace
from infoform.network.batches import read_inputs
from infoform.network.private_copy import PrivateCopies


def graph_of(laplace: Laplace, x: Tensor, kind: str, **options: Any) -> nn.Module:
    predictor, batch = laplace._predictor(), read_inputs(x, torch.device("cpu"))
    head = find_head(predictor, batch)
    with PrivateCopies(laplace.model).private() as copy:
        graph, _, _ = build_graph(
            predictor, copy, batch, kind=kind, head=head, noise=laplace.noise, options=ExportOptions(kind, **options)
        )
    return graph


def outputs_of(laplace: Laplace, x: Tensor, kind: str, **options: Any) -> dict[str, Tensor]:
    with torch.no_grad():
        found: dict[str, Tensor] = graph_of(laplace, x, kind, **options)(x)
    return found
