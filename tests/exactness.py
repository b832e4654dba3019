"""Autograd as the judge of a fit and of a linear prediction, one example at a time, over all that `coverage` names."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

import infoform
from dense import assert_close
from infoform.network.batches import read_inputs
from infoform.options import FitOptions


def jacobians(model: nn.Module, inputs: tuple[Tensor, ...], names: Sequence[str]) -> dict[str, Tensor]:
    """Return the gradients (N, C, ...) of every output in these parameters, each example in a batch of its own."""
    own = {name: one.detach().clone().requires_grad_() for name, one in model.named_parameters() if name in names}
    rows: dict[str, list[Tensor]] = {name: [] for name in own}
    for n in range(len(inputs[0])):
        pair = tuple(one[[n, n]] for one in inputs)  # torch's batch norm errs for one example alone
        outputs = functional_call(model, own, pair)[0]
        for output in outputs:
            found = torch.autograd.grad(output, list(own.values()), retain_graph=True, allow_unused=True)
            for (name, parameter), one in zip(own.items(), found, strict=True):
                rows[name].append(torch.zeros_like(parameter) if one is None else one.to_dense())
    return {name: torch.stack(one).unflatten(0, (len(inputs[0]), -1)) for name, one in rows.items()}


def check_exact(model: nn.Module, *inputs: Tensor, layers: list[str] | str | None = "all") -> infoform.Laplace:
    """Compare the diagonal of a fit, and the covariance of a linear prediction, with autograd's, to nine digits."""
    model = model.double().eval()
    laplace = infoform.Laplace(
        model,
        infoform.Regression(noise=1.0),
        structure="diag",
        prior="isotropic",
        layers=layers,
        fit_options=FitOptions(fisher="exact", novelty=False),
    )
    outputs = model(*inputs).detach()
    halves = [slice(0, len(outputs) // 2 + 1), slice(len(outputs) // 2 + 1, None)]
    laplace.fit([(*(one[half] for one in inputs), outputs[half]) for half in halves], progress=False)
    covered = [row.parameter for row in laplace.coverage() if row.covered]
    exact = jacobians(model, inputs, covered)
    covariance = torch.zeros(*outputs.shape, outputs.shape[1], dtype=torch.float64)
    posterior = laplace.posterior()
    seen: set[str] = set()
    for name, one in posterior.layers.items():
        diagonal = laplace.curvature[name].diagonal
        assert diagonal is not None
        own = laplace.layers[name].as_parameters(diagonal)
        expected = [exact[key].square().sum(1).mean(0).flatten() for key in own]
        assert_close(torch.cat([one.flatten() for one in own.values()]), torch.cat(expected))
        seen.update(own)
        keys = list(laplace.layers[name].parameters.values())
        flat = torch.cat([exact[key].reshape(*outputs.shape, -1) for key in keys], dim=2)
        variances = laplace.layers[name].as_parameters(1 / one.diagonal())
        covariance += (flat * torch.cat([variances[key].flatten() for key in keys])) @ flat.mT
    assert seen == set(covered)
    with laplace._predictor().private() as predictor:
        mean, found = predictor.linear(read_inputs(inputs if len(inputs) > 1 else inputs[0], torch.device("cpu")))
    assert_close(mean, outputs)
    assert_close(found, covariance)
    return laplace


def spread(model: nn.Module) -> nn.Module:
    """Give all parameters and statistics values that hide nothing: no ones, no zeros."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    for buffer in model.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    return model
