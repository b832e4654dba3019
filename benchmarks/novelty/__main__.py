"""Novelty beside the detectors of pytorch-ood, on six networks, in one run.

    .venv-peers/bin/python -m benchmarks.novelty --cache out/novelty     # in the background; the first run records
    python -m benchmarks.novelty --page                                  # writes docs/novelty-compared.md, runs nothing

INFOFORM_DATA must name the folder with the data sets and the public weights. Pictures go through each network once, and
what the layers were given is kept in the cache. Finished networks are in benchmarks/results/novelty.json, and a run
goes on from there; `--again NAME` measures a network anew, `--novelty NAME` novelty alone, beside the figures that the
other scores have there.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from benchmarks.common import command_line, environment, read_results, rounded, write_page, write_results
from benchmarks.novelty import choice, features, ours, peers
from benchmarks.novelty.measure import KNOWN, corruption_curves, split_false_alarms, unknown_figures
from benchmarks.novelty.networks import CASES, SPOILT, TRAIN, VALIDATION
from benchmarks.novelty.page import draw, page

SPLITS = 20  # of the known pictures of networks with few of them


def recorded(folder: Path) -> dict[str, features.Features]:
    """Return what was recorded of a network, by set."""
    paths = sorted(path.stem for path in folder.glob("*.npz") if not path.stem.endswith(".part"))
    return {one: features.read(folder, one) for one in (*KNOWN, *(path for path in paths if path not in KNOWN))}


def figures(scores: ours.Scores, sets: Mapping[str, features.Features]) -> dict[str, Any]:
    """Return the figures of each score."""
    methods = {}
    for method, one in scores.items():
        methods[method] = unknown_figures(one, limit=0.95 if method == "novelty" else None)
        if len(sets["fresh"].logits) < VALIDATION:
            methods[method]["split_false_alarms"] = split_false_alarms(one, SPLITS)
    return methods


def measure_ours(name: str, cache: Path, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of one network with novelty measured anew; others' stay, and curves of sets not recorded."""
    case, sets = CASES[name], recorded(cache / name)
    own, facts = ours.score(case.load(cache), case.last, sets, posterior=False)
    curves = dict(before["curves"])
    if all(f"{one} 5" in sets for one in curves):
        told = corruption_curves(own, sets, case.spoilt, methods=("novelty",))
        curves = {one: {**before["curves"][one], **curve} for one, curve in told.items()}
    facts = {key: value for key, value in facts.items() if key != "temperature"} | {"chosen_on": case.chosen_on}
    return {**before, **facts, "methods": {**before["methods"], **figures(own, sets)}, "curves": curves}


def measure(name: str, cache: Path) -> dict[str, Any]:
    """Return all figures of one network."""
    case, folder = CASES[name], cache / name
    features.extract(case, folder)
    sets, network = recorded(folder), case.load(cache)
    head = network.get_submodule(case.last)
    assert isinstance(head, torch.nn.Linear)
    own, facts = ours.score(network, case.last, sets)
    scores = {**own, **peers.score(head, sets)}
    labels, logits = sets["fresh"].labels, sets["fresh"].logits
    assert labels is not None
    return {
        "title": case.title,
        "chosen_on": case.chosen_on,
        "counts": {key: len(one.logits) for key, one in sets.items() if not key[-1].isdigit()},
        "accuracy": float((logits.argmax(1) == labels).double().mean()),
        **facts,
        "methods": figures(scores, sets),
        "curves": corruption_curves(scores, sets, case.spoilt),
        **({"choice": choice.study(sets)} if case.chosen_on and case.variants else {}),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__)
    parser.add_argument("--cache", type=Path, default=Path("out/novelty"), help="where recorded features are kept")
    parser.add_argument("--networks", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--again", nargs="+", choices=list(CASES), default=(), help="networks to measure anew")
    parser.add_argument(
        "--novelty", nargs="+", choices=list(CASES), default=(), help="recorded networks to measure novelty alone anew"
    )
    given = parser.parse_args(arguments)
    found: dict[str, Any] = read_results("novelty", empty={})
    if not given.page:
        found["settings"] = {"train": TRAIN, "validation": VALIDATION, "spoilt": SPOILT, "splits": SPLITS}
        found["environment"] = environment()
        networks = found.setdefault("networks", {})
        for name in given.novelty:
            networks[name] = rounded(measure_ours(name, given.cache, networks[name]))
            write_results("novelty", found)
        for name in given.networks if not given.novelty else ():
            if name not in networks or name in given.again:
                begun = time.perf_counter()
                networks[name] = rounded(measure(name, given.cache))
                networks[name]["seconds"] = round(time.perf_counter() - begun)
                write_results("novelty", found)
                print(f"{name}: {networks[name]['seconds']} s", flush=True)
    if found:
        draw()
        write_page("novelty-compared", page())


if __name__ == "__main__":
    main()
