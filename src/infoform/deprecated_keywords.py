"""Options that `Laplace` and `plan` took one by one, before structures, priors and fit options were objects.

They go on working, with a warning that says the new form.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from infoform.options import FIT_OPTIONS, PRIOR_RANK, STRUCTURE_OPTIONS, FitOptions, Settings
from infoform.posteriors import PRESETS, Structure, StructureChoice, get_structure
from infoform.priors import Activation, Prior


def read_keywords(
    given: Mapping[str, Any],
    *,
    structure: StructureChoice,
    prior: str | Prior | None,
    fit_options: FitOptions | None,
    layers: Sequence[str] | str | None,
    seed: int,
    caller: str,
    stacklevel: int,
) -> Settings:
    """Return the settings that objects and keywords say together.

    Args:
        given: The keywords.
        structure: A structure or its name.
        prior: A prior or its name; None for the default one.
        fit_options: How the curvature is measured; None for the defaults.
        layers: Names or patterns of layers, or "last".
        seed: Of all random numbers.
        caller: The function that took the keywords.
        stacklevel: Where the warning points to, as for `warnings.warn`.

    Returns:
        Checked settings.

    Raises:
        TypeError: If a keyword is not known.
    """
    unknown = [
        name for name in given if name not in {*STRUCTURE_OPTIONS, *FIT_OPTIONS, "prior_rank"} - {"clip", "novelty"}
    ]
    if unknown:
        raise TypeError(f"{caller}() got an unexpected keyword argument {unknown[0]!r}")
    options = fit_options or FitOptions()
    asked = [given.get("prior_rank"), options.input_rank, prior.rank if isinstance(prior, Prior) else None]
    prior_rank = max((rank for rank in asked if rank is not None), default=PRIOR_RANK)
    of_structure = {name: value for name, value in given.items() if name in STRUCTURE_OPTIONS}
    of_fit = {name: value for name, value in given.items() if name in FIT_OPTIONS}
    named = get_structure(structure)
    preset = PRESETS[structure][1] if isinstance(structure, str) and structure in PRESETS else {}
    takes = {name: of_structure[name] for name in named.option_names() if name in of_structure and name not in preset}
    if given:
        new = _new_form(structure, named, takes, of_fit, given)
        told = ", ".join(f"{name}={value!r}" for name, value in given.items())
        warnings.warn(f"{caller}({told}) is deprecated; write {new}.", DeprecationWarning, stacklevel=stacklevel)
    own, measured = named.with_options(**takes), replace(options, **of_fit)
    return Settings(own, measured, layers, prior_rank, seed, shared=of_structure)


def _new_form(
    structure: StructureChoice,
    named: Structure,
    takes: Mapping[str, Any],
    of_fit: Mapping[str, Any],
    given: Mapping[str, Any],
) -> str:
    parts = []
    if takes and isinstance(structure, str) and structure in PRESETS:
        told = "".join(f", {name}={value!r}" for name, value in takes.items())
        parts.append(f"structure=infoform.get_structure({structure!r}{told})")
    elif takes:
        told = ", ".join(f"{name}={value!r}" for name, value in takes.items())
        parts.append(f"structure=infoform.{type(named).__name__}({told})")
    if of_fit:
        told = ", ".join(f"{name}={value!r}" for name, value in of_fit.items())
        parts.append(f"fit_options=infoform.FitOptions({told})")
    if "prior_rank" in given:
        parts.append(f"prior=infoform.{Activation.__name__}(rank={given['prior_rank']!r})")
    unused = [name for name in given if name in STRUCTURE_OPTIONS and name not in takes]
    if unused:
        parts.append(f"nothing for {', '.join(unused)}, which structure {named.label!r} does not take")
    return ", ".join(parts)
