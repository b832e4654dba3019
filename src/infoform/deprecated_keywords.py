"""Options that `Laplace` and `plan` took one by one, before structures, priors and fit options were objects.

They go on working, with a warning that says the new form.
"""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from infoform.options import FIT_OPTIONS, PRIOR_RANK, STRUCTURE_OPTIONS, FitOptions
from infoform.posteriors import PRESETS, Structure, get_structure
from infoform.priors import Activation, Prior


def read_keywords(
    structure: str | Structure,
    prior: str | Prior | None,
    fit_options: FitOptions,
    given: Mapping[str, Any],
    *,
    caller: str,
    stacklevel: int,
) -> tuple[Structure, str | Prior | None, FitOptions, Mapping[str, Any], int]:
    """Return structure, prior, fit options, options for other structures and the prior's rank, as the keywords say.

    Raises:
        TypeError: If a keyword is not known.
    """
    unknown = [name for name in given if name not in {*STRUCTURE_OPTIONS, *FIT_OPTIONS, "prior_rank"} - {"clip"}]
    if unknown:
        raise TypeError(f"{caller}() got an unexpected keyword argument {unknown[0]!r}")
    asked = [given.get("prior_rank"), fit_options.input_rank, prior.rank if isinstance(prior, Prior) else None]
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
    return named.with_options(**takes), prior, replace(fit_options, **of_fit), of_structure, prior_rank


def _new_form(
    structure: str | Structure,
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
