"""`infoform.plan`: what a posterior will cost before a fit, and how to spend a budget of bytes after it."""

from dataclasses import replace
from typing import Any

from torch import nn

from infoform.common.bytes import read_bytes
from infoform.common.checks import check_whole
from infoform.deprecated_keywords import read_keywords
from infoform.laplace import Laplace
from infoform.network.batches import device_of, read_inputs
from infoform.network.last_layer import LAST, select_last_layer
from infoform.network.selection import Selection
from infoform.options import FitOptions
from infoform.planning.after_fit import MAX_RANK
from infoform.planning.before_fit import plan_before_fit
from infoform.planning.plan import Plan
from infoform.planning.target import PlanTarget
from infoform.posteriors import StructureChoice


def plan(
    target: nn.Module | Laplace,
    *,
    structure: StructureChoice | None = None,
    memory: int | str | None = None,
    layers: Selection = None,
    fit_options: FitOptions | None = None,
    example: Any = None,
    likelihood_outputs: int | None = None,
    max_memory: int | str | None = None,
    offload: bool = False,
    max_rank: int = MAX_RANK,
    **deprecated: Any,
) -> Plan:
    """Plan the posterior of a model before any data is seen, or of a fitted `Laplace` from what it has measured.

    Args:
        target: A model, which is left as found and may be on the meta device, or a `Laplace`.
        structure: The structure of a model's posterior, as for `Laplace`, or another one of a fitted `Laplace`.
        memory: Bytes ("48MB", "48MiB" or a number) that choose the ranks of structure "inf": after a fit layer by
            layer, where they keep most; before it one for all, for the worst case.
        layers: Names or patterns of the layers, as for `Laplace`; "last" needs an example.
        fit_options: How a fit of the model is to measure, as for `Laplace`.
        example: A batch of inputs of the size that the fit will see; without it peak and cost are unknown.
        likelihood_outputs: The number of the model's outputs, which matters with `fisher="exact"`.
        max_memory: What the fit may take, as for `fit`: with an example the plan tells the groups of layers.
        offload: Whether what is finished leaves the device during the fit.
        max_rank: The largest rank that a layer gets of `memory`.
        deprecated: Options of structure and fit one by one, as they were given before these were objects.

    Returns:
        A `Plan`, which prints as a table.

    Raises:
        ValueError: If the memory holds not even the least, or if arguments exclude each other.

    Example:
        ```python
        plan = infoform.plan(model, memory="48MB", example=images)
        print(plan)
        ```
    """
    budget = None if memory is None else read_bytes(memory)
    check_whole("max_rank", max_rank)
    if budget is not None and deprecated.get("rank") is not None:
        given = deprecated["rank"]
        raise ValueError(f"rank and memory exclude each other, got rank={given!r} and memory={memory!r}; give one.")
    if isinstance(target, Laplace):
        given = {**deprecated, "layers": layers, "fit_options": fit_options}
        wrong = [name for name, value in given.items() if value is not None]
        if wrong:
            raise ValueError(f"a Laplace has its own {wrong[0]}, got {wrong[0]}={given[wrong[0]]!r}; leave it out.")
        if target.num_data is not None:
            if max_memory is not None:
                raise ValueError(f"max_memory is of a fit, and this one is done, got {max_memory!r}; leave it out.")
            return target._plan(structure=structure, budget=budget, max_rank=max_rank)
        if structure is not None:
            raise ValueError(f"an unfitted Laplace has its own structure, got {structure!r}; leave it out, or fit.")
        laplace = target
    else:
        known = {name: value for name, value in deprecated.items() if not (name == "rank" and value is None)}
        settings = read_keywords(
            known,
            structure=structure or "inf",
            prior=None,
            fit_options=fit_options,
            layers=None if callable(layers) else layers,
            seed=0,
            caller="plan",
            stacklevel=3,
        )
        laplace = Laplace(
            target, "classification", structure=settings.structure, layers=layers, fit_options=settings.fit
        )
    limit = None if max_memory is None else read_bytes(max_memory)
    if limit is not None and example is None:
        raise ValueError("max_memory needs example=, a batch of inputs, to know what a pass holds; give one.")
    return plan_before_fit(
        _target(laplace, example),
        budget=budget,
        example=example,
        outputs=likelihood_outputs,
        limit=limit,
        stays=not offload,
    )


def _target(laplace: Laplace, example: Any) -> PlanTarget:
    """Return what is planned: of `layers="last"`, the layer that running the example shows."""
    target = laplace._plan_target()
    if laplace.settings.layers != LAST:
        return target
    if example is None:
        raise ValueError("layers='last' is found by running the model; give example=, a batch of inputs.")
    batch = read_inputs(example, device_of(laplace.model))
    layers, _ = select_last_layer(laplace.model, batch, lambda outputs: outputs.reshape(len(outputs), -1))
    return replace(target, layers=layers)
