"""The page docs/novelty-compared.md and its picture, from benchmarks/results/novelty.json; measures nothing."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.common import DOCS, read_results, run_fold, template

from infoform.novelty.trust import FULL, NONE
from infoform.pages.markdown import bold_best, bullets, table
from infoform.pages.numbers import UNKNOWN, listed, size, span

OURS = ("novelty", "entropy, last layer", "mutual information, last layer")
SETS = {  # network -> sets whose figures the first table has
    "resnet20": ("SVHN", "paintings", "ImageNet"),
    "resnet56": ("SVHN", "paintings", "ImageNet"),
}
EASY = ("MNIST in colour", "MNIST in grey", "uniform noise", "normal noise")
NEAR = ("paintings", "ImageNet")
MARGIN = 0.02  # of AUROC, by which another score is better
SVHN_AIM, EASY_AIM, NEAR_MARGIN, ALARMS = 0.975, 0.999, 0.005, (0.04, 0.06)
CURVES = ("resnet56", "ResNet-56")  # the network of the picture: none that the choice was made on
PICTURE = "novelty-corruptions.svg"
STYLES = {"error": ("wrong answers", "black", "--"), "novelty": ("novelty", "tab:blue", "-"),
          "entropy": ("entropy", "tab:orange", "-"), "kNN": ("kNN", "tab:green", "-")}  # fmt: skip
Found = Mapping[str, Any]


def page() -> str:
    """Return docs/novelty-compared.md."""
    found = read_results("novelty")
    hand = read_results("by_hand")["novelty"]
    networks: Found = found["networks"]
    chosen = [name for name, one in networks.items() if one["chosen_on"]]
    reported = [name for name in networks if name not in chosen]
    methods = _methods(networks)
    means = {method: _mean(networks, method, networks) for method in methods}
    others = {method: mean for method, mean in means.items() if method not in OURS}
    partly = [method for method in methods if any(method not in one["methods"] for one in networks.values())]
    best = max(others, key=lambda method: others[method])
    environment = {name: value for name, value in found["environment"].items() if name != "versions"}
    return template("novelty-compared").fill(
        novelty_mean=f"{means['novelty']:.3f}",
        best=best,
        best_mean=f"{others[best]:.3f}",
        reported_mean=f"{_mean(networks, 'novelty', reported):.3f}",
        best_reported=_best(networks, reported),
        networks=listed([one["title"] for one in networks.values()]),
        main=_main_table(networks, methods, reported),
        partly=listed([f"*{method}*" for method in partly]) if partly else None,
        picture=PICTURE,
        curve_network=CURVES[1],
        rises=_rises(networks),
        aims=bullets(_aims(networks, means)),
        margin=MARGIN,
        worse=bullets(_worse(networks)),
        bytes=span_of_bytes(networks),
        by_network="\n\n".join(_network_table(one, methods) for one in networks.values()),
        trust="\n".join(f"| {one['title']} | {one['trust']:.2f} |" for one in networks.values() if "trust" in one),
        untrusted=listed([one["title"] for one in networks.values() if "trust" not in one]) or "none",
        mobilenet=networks["mobilenet"]["title"],
        **_trust_by_hand(hand, networks),
        reported=listed([networks[name]["title"] for name in reported]),
        choice=_choice(networks, chosen),
        train=f"{found['settings']['train']:,}",
        validation=f"{found['settings']['validation']:,}",
        splits=found["settings"]["splits"],
        accuracies="; ".join(f"{one['title']} {one['accuracy']:.3f}" for one in networks.values()),
        run=run_fold({**found["settings"], **environment}, found["environment"]["versions"]),
    )


def _trust_by_hand(hand: Found, networks: Found) -> dict[str, str]:
    """Return what was measured by hand when trust was chosen."""
    full, one_mean = hand["paintings_with_distances_in_full"], hand["paintings_with_one_mean"]
    wrong, paintings = hand["wrong_answers_on_mobilenet"], hand["paintings_on_mobilenet"]
    correlations = hand["rank_correlation_of_head_and_answer"].items()
    rows = [[rule, *(f"{value:.3f}" for value in values)] for rule, values in hand["rules"].items()]
    return {
        "full_efficientnet": f"{full['efficientnet']:.3f}",
        "full_mobilenet": f"{full['mobilenet']:.3f}",
        "one_mean_typicality": f"{one_mean['typicality']:.2f}",
        "one_mean_head": f"{one_mean['head']:.2f}",
        "correlations": ", ".join(f"{value:.2f} on {networks[name]['title']}" for name, value in correlations),
        "trust_none": f"{NONE}",
        "trust_full": f"{FULL}",
        "trust_rules": table(["rule", *hand["columns"]], rows),
        "wrong_entropy": f"{wrong['entropy']:.2f}",
        "wrong_energy": f"{wrong['energy']:.2f}",
        "paintings_entropy": f"{paintings['entropy']:.3f}",
        "paintings_energy": f"{paintings['energy']:.3f}",
    }


def draw() -> None:
    """Draw alarms and errors against the strength of corruptions."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "infoform"
    from matplotlib import pyplot

    networks = read_results("novelty")["networks"]
    if CURVES[0] not in networks:
        return
    curves = networks[CURVES[0]]["curves"]
    figure, axes = pyplot.subplots(1, len(curves), figsize=(9, 3), sharey=True, layout="constrained")
    for axis, (name, told) in zip(axes, curves.items(), strict=True):
        for key, (label, colour, line) in STYLES.items():
            axis.plot(range(len(told[key])), told[key], line, color=colour, label=label, marker=".")
        axis.set(title=name, xlabel="strength", ylim=(0, 1.02))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("share of pictures")
    axes[1].legend(frameon=False, loc="upper left")
    figure.savefig(DOCS / "images" / PICTURE, metadata={"Date": None})
    pyplot.close(figure)


def span_of_bytes(networks: Found) -> str:
    """Return the least and the most bytes that novelty stores."""
    values = [one["novelty_bytes"] for one in networks.values()]
    return f"{size(min(values))} to {size(max(values))}"


def _methods(networks: Found) -> list[str]:
    first = next(iter(networks.values()))["methods"]
    return [name for name in first if not name.startswith("novelty: ")]


def _values(networks: Found, method: str, names: Any) -> Iterator[float]:
    for name in (one for one in names if method in networks[one]["methods"]):
        yield from (one["auroc"] for one in networks[name]["methods"][method]["sets"].values())


def _mean(networks: Found, method: str, names: Any) -> float:
    """Return the mean over all sets of the networks, each set counting once for each network."""
    values = list(_values(networks, method, names))
    return sum(values) / len(values)


def _best(networks: Found, names: list[str]) -> str:
    means = {method: _mean(networks, method, names) for method in _methods(networks) if method not in OURS}
    best = max(means, key=lambda method: means[method])
    return f"{means[best]:.3f} of {best}"


def _alarms(one: Found) -> float:
    return float(one.get("split_false_alarms", one["false_alarms"]))


def _main_table(networks: Found, methods: list[str], reported: list[str]) -> str:
    places = [(name, one) for name, sets in SETS.items() if name in networks for one in sets]
    columns: list[list[float]] = [
        [_mean(networks, method, networks) for method in methods],
        [_mean(networks, method, reported) for method in methods],
        *([networks[name]["methods"][method]["sets"][one]["auroc"] for method in methods] for name, one in places),
    ]
    cells = [bold_best([f"{value:.3f}" for value in column], column, largest=True) for column in columns]
    alarms = [
        span([100 * _alarms(one["methods"][method]) for one in networks.values() if method in one["methods"]], ".1f")
        for method in methods
    ]
    missing = [any(method not in one["methods"] for one in networks.values()) for method in methods]
    cells[0], cells[1] = (
        [f"({cell})" if lacks else cell for cell, lacks in zip(column, missing, strict=True)] for column in cells[:2]
    )
    order = sorted(range(len(methods)), key=lambda row: -columns[0][row])
    head = ["", "mean of all", "mean, networks not chosen on"]
    head += [f"{networks[name]['title']}, {one}" for name, one in places]
    rows = [[_title(methods[row]), *(column[row] for column in cells), f"{alarms[row]} %"] for row in order]
    return table([*head, "false alarms at 5 %"], rows)


def _title(method: str) -> str:
    return f"infoform: {method}" if method in OURS else method


def _network_table(one: Found, methods: list[str]) -> str:
    sets = list(one["methods"]["novelty"]["sets"])
    names = [name for name in methods if name in one["methods"]]
    names += [name for name in one["methods"] if name.startswith("novelty: ")]
    rows = []
    for name in names:
        told = one["methods"][name]
        cells = [f"{told['sets'][key]['auroc']:.3f} / {100 * told['sets'][key]['fpr95']:.0f}" for key in sets]
        rows.append([_title(name), *cells, f"{100 * _alarms(told):.1f} %"])
    return f"**{one['title']}**\n\n" + table(["", *sets, "false alarms"], rows)


def _worse(networks: Found) -> Iterator[str]:
    """Name the sets on which another method is well ahead of novelty, and the best one there."""
    for one in networks.values():
        others = {name: told for name, told in one["methods"].items() if not name.startswith("novelty")}
        for key, told in one["methods"]["novelty"]["sets"].items():
            best = max(others, key=lambda name: others[name]["sets"][key]["auroc"])
            value = others[best]["sets"][key]["auroc"]
            if value > told["auroc"] + MARGIN:
                yield f"{one['title']}, {key}: novelty {told['auroc']:.3f}, {_title(best)} {value:.3f}"


def _aims(networks: Found, means: Mapping[str, float]) -> Iterator[str]:
    """Say of every aim whether it is reached, and by how much it is missed where it is not."""
    resnets = [name for name in ("resnet20", "resnet56") if name in networks]

    def at(name: str, one: str, method: str = "novelty") -> float:
        return float(networks[name]["methods"][method]["sets"][one]["auroc"])

    svhn = {networks[name]["title"]: at(name, "SVHN") for name in resnets}
    yield _aim(f"CIFAR-10 against SVHN at least {SVHN_AIM}", svhn, [k for k, v in svhn.items() if v < SVHN_AIM])
    easy = {f"{one} on {networks[name]['title']}": at(name, one) for name in resnets for one in EASY}
    missed = {key: value for key, value in easy.items() if value < EASY_AIM}
    yield _aim(f"digits in colour and noise at least {EASY_AIM}", missed or easy, list(missed))
    near = {}
    for name, network in networks.items():
        for one in (key for key in NEAR if key in network["methods"]["novelty"]["sets"]):
            rival = max(at(name, one, "entropy"), at(name, one, "kNN"))
            near[f"{one} on {networks[name]['title']}"] = at(name, one) - rival
    missed_near = [key for key, value in near.items() if value < -NEAR_MARGIN]
    yield _aim(
        "paintings and ImageNet no lower than the better of entropy and kNN by more than 0.005", near, missed_near
    )
    everywhere = [name for name in means if all(name in one["methods"] for one in networks.values())]
    higher = [_title(name) for name in everywhere if means[name] > means["novelty"]]
    yield "the highest mean of all methods: " + (f"missed, higher: {listed(higher)}" if higher else "reached")
    alarms = {one["title"]: _alarms(one["methods"]["novelty"]) for one in networks.values()}
    outside = [name for name, value in alarms.items() if not ALARMS[0] <= value <= ALARMS[1]]
    yield _aim("false alarms at 5 % between 4 and 6 % on every network", alarms, outside, percent=True)


def _aim(what: str, values: Mapping[str, float], missed: list[str], *, percent: bool = False) -> str:
    told = ", ".join(
        f"{name} {100 * value:.1f} %" if percent else f"{name} {value:.3f}" for name, value in values.items()
    )
    return f"{what}: {'missed on ' + listed(missed) if missed else 'reached'} ({told})"


def _rises(networks: Found) -> str:
    """Say how often novelty rises from one strength to the next."""
    steps = [
        after >= before
        for one in networks.values() for told in one["curves"].values()
        for before, after in zip(told["mean novelty"], told["mean novelty"][1:], strict=False)
    ]  # fmt: skip
    return f"{sum(steps)} of {len(steps)}"


def _choice(networks: Found, chosen: list[str]) -> str | None:
    studies = {name: networks[name]["choice"] for name in chosen if "choice" in networks[name]}
    if not studies:
        return None
    rows = []
    for kind in ("joined", "alone"):
        first = next(iter(studies.values()))[kind]
        for variant in first:
            cells = [study[kind][variant] for study in studies.values()]
            mean = sum(one["mean"] for one in cells) / len(cells)
            svhn = next((one["sets"]["SVHN"] for one in cells if "SVHN" in one["sets"]), None)
            rows.append([
                variant if kind == "joined" else f"alone: {variant}", f"{mean:.4f}",
                *(f"{one['mean']:.4f}" for one in cells), UNKNOWN if svhn is None else f"{svhn:.4f}",
            ])  # fmt: skip
    return table(["variant", "mean of both", *(networks[name]["title"] for name in studies), "ResNet-20, SVHN"], rows)
