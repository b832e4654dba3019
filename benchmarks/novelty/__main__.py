"""Novelty beside the detectors of pytorch-ood, on six networks, in one run.

    .venv-peers/bin/python -m benchmarks.novelty --cache out/novelty     # in the background; the first run records
    python -m benchmarks.novelty --page                                  # writes docs/novelty-compared.md, runs nothing

INFOFORM_DATA must name the folder with the data sets and the public weights. Pictures go through each network once, and
what the layers were given is kept in the cache. Finished networks are in benchmarks/results/novelty.json, and a run
goes on from there; `--again NAME` measures a network anew.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from benchmarks.common import command_line, environment, read_results, rounded, write_page, write_results
from benchmarks.novelty import choice, features, ours, peers
from benchmarks.novelty.measure import KNOWN, corruption_curves, split_false_alarms, unknown_figures
from benchmarks.novelty.networks import CASES, SPOILT, TRAIN, VALIDATION
from benchmarks.novelty.page import draw, page

SPLITS = 20  # of the known pictures of networks with few of them


def measure(name: str, cache: Path) -> dict[str, Any]:
    """Return all figures of one network."""
    case, folder = CASES[name], cache / name
    features.extract(case, folder)
    paths = sorted(path.stem for path in folder.glob("*.npz") if not path.stem.endswith(".part"))
    sets = {one: features.read(folder, one) for one in (*KNOWN, *(path for path in paths if path not in KNOWN))}
    network = case.load(cache)
    head = network.get_submodule(case.last)
    assert isinstance(head, torch.nn.Linear)
    own, facts = ours.score(network, case.last, sets)
    scores = {**own, **peers.score(head, sets)}
    methods = {}
    for method, one in scores.items():
        methods[method] = unknown_figures(one, limit=0.95 if method == "novelty" else None)
        if len(sets["fresh"].logits) < VALIDATION:
            methods[method]["split_false_alarms"] = split_false_alarms(one, SPLITS)
    labels, logits = sets["fresh"].labels, sets["fresh"].logits
    assert labels is not None
    return {
        "title": case.title,
        "chosen_on": case.chosen_on,
        "counts": {key: len(one.logits) for key, one in sets.items() if not key[-1].isdigit()},
        "accuracy": float((logits.argmax(1) == labels).double().mean()),
        **facts,
        "methods": methods,
        "curves": corruption_curves(scores, sets, case.spoilt),
        **({"choice": choice.study(sets)} if case.chosen_on else {}),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__)
    parser.add_argument("--cache", type=Path, default=Path("out/novelty"), help="where recorded features are kept")
    parser.add_argument("--networks", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--again", nargs="+", choices=list(CASES), default=(), help="networks to measure anew")
    given = parser.parse_args(arguments)
    found: dict[str, Any] = read_results("novelty", empty={})
    if not given.page:
        found["settings"] = {"train": TRAIN, "validation": VALIDATION, "spoilt": SPOILT, "splits": SPLITS}
        found["environment"] = environment()
        networks = found.setdefault("networks", {})
        for name in given.networks:
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
