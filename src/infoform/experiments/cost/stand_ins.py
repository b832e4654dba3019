"""KFAC and EFB without a fit: tensors of the shapes that a fit would give, to count them or to time products of them.

What these two store, and how long a sample takes, depends on the layers' shapes alone; the eigendecompositions of a fit
would take hours for the large networks.
"""

import torch
from torch import Tensor, nn

import infoform
from infoform.posteriors import EfbPosterior, KfacPosterior, LayerPosterior
from infoform.posteriors.network_posterior import Posterior
from infoform.priors import LayerPrior


def stand_in(model: nn.Module, structure: str, *, device: str = "cpu", seed: int = 0) -> Posterior:
    """Return a posterior of random tensors: factors, or eigenvectors and eigenvalues.

    Args:
        model: the network, of whose covered layers the shapes are taken.
        structure: "kfac" or "efb-paper".
        device: "meta" for tensors that have shapes and no memory.
        seed: of the random numbers.

    Returns:
        The posterior, with τ = 1 and N = 1.
    """
    generator = None if device == "meta" else torch.Generator(device).manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device=device)

    layers: dict[str, LayerPosterior] = {}
    for name, layer in infoform.Laplace(model, "classification").layers.items():
        outputs, inputs = layer.shape
        of_inputs, of_gradients = (random(size, size) / size for size in (inputs, outputs))
        if structure == "kfac":
            a, g = (torch.eye(len(one), device=device) + (one + one.T) / 2 for one in (of_inputs, of_gradients))
            layers[name] = KfacPosterior(LayerPrior(1.0), 1.0, a, g, "factored")
        else:
            layers[name] = EfbPosterior(LayerPrior(1.0), 1.0, of_inputs, of_gradients, random(outputs, inputs))
    return Posterior(layers)
