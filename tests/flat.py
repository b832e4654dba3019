"""`Laplace` and `plan` with the options of structure, prior and fit given one by one, as tests like to vary them."""

from typing import Any

from torch import nn

import infoform
from infoform.options import FIT_OPTIONS, Settings


def flat_laplace(
    model: nn.Module, likelihood: str | infoform.Likelihood, *, prior: Any = None, **options: Any
) -> infoform.Laplace:
    """Return a `Laplace` with these options, whichever object takes them."""
    given = options.pop("structure", "inf")
    own = given if isinstance(given, infoform.Structure) else None
    label = "inf" if own is not None else given
    unknown = options.keys() - Settings().flat().keys()
    assert not unknown, unknown
    settings = Settings.from_flat({**Settings().flat(), "structure": label, **options}, own)
    laplace = infoform.Laplace(
        model,
        likelihood,
        structure=settings.structure,
        prior=prior,
        layers=settings.layers,
        fit_options=settings.fit,
        seed=settings.seed,
    )
    laplace.settings = settings
    return laplace


def flat_plan(target: nn.Module | infoform.Laplace, **options: Any) -> infoform.Plan:
    """Return the plan with these options, whichever object takes them."""
    if isinstance(target, infoform.Laplace):
        return infoform.plan(target, **options)
    if options.get("rank") is not None and "memory" in options:
        return infoform.plan(target, **options)  # which refuses both
    given: dict[str, Any] = {name: options.pop(name) for name in ("rank", "storage") if name in options}
    flat: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    fit = {name: options.pop(name) for name in FIT_OPTIONS if name in options}
    label = options.pop("structure", None) or "inf"
    structure = Settings.from_flat({**Settings().flat(), "structure": label, **flat}).structure
    return infoform.plan(target, structure=structure, fit_options=infoform.FitOptions(**fit), **options)
