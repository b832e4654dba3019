"""The peers, each called by its own public interface at its best setting for one Monte Carlo sample an example.

Each gets a copy of the model in which only linear and convolutional layers ask for gradients: the layers that infoform
covers too, and without which laplace-torch and curvlinops stop at the first batch-norm.
"""

import copy
from collections.abc import Iterator
from typing import Any

from torch import nn

from .methods import Method, Run
from .networks import Batches

COVERED = (nn.Linear, nn.Conv2d)


def covered_layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers that all can do; a subclass, such as attention's projection, is never called as a module."""
    return [module for module in model.modules() if type(module) in COVERED]


def covered_copy(model: nn.Module) -> nn.Module:
    duplicate = copy.deepcopy(model)
    wanted = {id(parameter) for layer in covered_layers(duplicate) for parameter in layer.parameters()}
    for parameter in duplicate.parameters():
        parameter.requires_grad_(id(parameter) in wanted)
    return duplicate


def fit_laplace_torch(structure: str, backend: str) -> Run:
    def run(model: nn.Module, batches: Batches) -> Iterator[str]:
        import laplace
        from laplace import curvature

        fitted = laplace.Laplace(
            model,
            "classification",
            subset_of_weights="all",
            hessian_structure=structure,
            backend=getattr(curvature, backend),
            backend_kwargs={"stochastic": True},
        )
        fitted.fit(batches)
        yield "fit"
        fitted.sample(1)
        yield "sample"

    return run


def fit_curvlinops(operator: str) -> Run:
    def run(model: nn.Module, batches: Batches) -> Iterator[str]:
        import curvlinops

        built: Any = getattr(curvlinops, operator)(
            model,
            nn.CrossEntropyLoss(),
            [parameter for layer in covered_layers(model) for parameter in layer.parameters()],
            batches,
            fisher_type=curvlinops.FisherType.MC,
            mc_samples=1,
            check_deterministic=False,  # these three save it passes over the data
            num_data=len(batches.dataset),  # type: ignore[arg-type]
            num_per_example_loss_terms=1,
        )
        built.compute_kronecker_factors()
        if operator == "EKFACLinearOperator":
            built.compute_eigenvalue_correction()
        yield "fit"

    return run


def fit_nngeometry(representation: str) -> Run:
    def run(model: nn.Module, batches: Batches) -> Iterator[str]:
        from nngeometry import object as representations
        from nngeometry.layercollection import LayerCollection
        from nngeometry.metrics import FIM_MonteCarlo

        layers = LayerCollection()
        for layer in covered_layers(model):
            layers.add_layer_from_model(model, layer)
        matrix = FIM_MonteCarlo(
            model,
            batches,
            getattr(representations, representation),
            variant="classif_logits",
            trials=1,
            layer_collection=layers,
        )
        if representation == "PMatEKFAC":  # its constructor stops at KFAC's eigenvalues
            matrix.update_diag(batches)
        yield "fit"

    return run


def _laplace_torch(kind: str, structure: str, backend: str, *needs: str, only: tuple[str, ...] | None = None) -> Method:
    call = (
        f'`Laplace(model, "classification", subset_of_weights="all", hessian_structure="{structure}", '
        f'backend={backend}, backend_kwargs={{"stochastic": True}}).fit(batches)`, `.sample(1)`'
    )
    return Method(
        "laplace-torch", kind, call, fit_laplace_torch(structure, backend), covered_copy, ("laplace", *needs), only
    )


def _curvlinops(kind: str, operator: str, then: str) -> Method:
    call = (
        f"`{operator}(model, CrossEntropyLoss(), params, batches, fisher_type=FisherType.MC, mc_samples=1, "
        f"check_deterministic=False, num_data=N, num_per_example_loss_terms=1)`, {then}"
    )
    return Method("curvlinops", kind, call, fit_curvlinops(operator), covered_copy, ("curvlinops",))


def _nngeometry(kind: str, representation: str, then: str = "") -> Method:
    call = (
        f'`FIM_MonteCarlo(model, batches, {representation}, variant="classif_logits", trials=1, '
        f"layer_collection=layers)`{then}"
    )
    return Method("nngeometry", kind, call, fit_nngeometry(representation), covered_copy, ("nngeometry",))


_SEQUENTIAL = ("mlp", "lenet")  # BackPACK's backends refuse a model of which some parameters are switched off
PEERS = {
    "laplace-torch diag, asdl": _laplace_torch("diag", "diag", "AsdlGGN", "asdl"),
    "laplace-torch diag, backpack": _laplace_torch("diag", "diag", "BackPackGGN", "backpack", only=_SEQUENTIAL),
    "laplace-torch kron, curvlinops": _laplace_torch("kfac", "kron", "CurvlinopsGGN", "curvlinops"),
    "laplace-torch kron, asdl": _laplace_torch("kfac", "kron", "AsdlGGN", "asdl"),
    "laplace-torch kron, backpack": _laplace_torch("kfac", "kron", "BackPackGGN", "backpack", only=_SEQUENTIAL),
    "curvlinops KFAC": _curvlinops(
        "kfac", "KFACLinearOperator", "`.compute_kronecker_factors()`: factors alone, nothing decomposed"
    ),
    "curvlinops EKFAC": _curvlinops(
        "efb", "EKFACLinearOperator", "`.compute_kronecker_factors()`, `.compute_eigenvalue_correction()`"
    ),
    "nngeometry diag": _nngeometry("diag", "PMatDiag"),
    "nngeometry KFAC": _nngeometry("kfac", "PMatKFAC", ": factors alone, nothing decomposed"),
    "nngeometry EKFAC": _nngeometry("efb", "PMatEKFAC", ", `.update_diag(batches)`"),
}
