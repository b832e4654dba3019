"""The page of benchmarks/architectures.py: how many networks are exact, and which are not."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from benchmarks.common import read_results, template

from infoform.pages.markdown import folded, table

LIBRARIES = ("timm", "huggingface")
JUDGED = ("exact", "close", "WRONG", "refused")


def page(*, examples: int, outputs: int, largest: int) -> str:
    """Return docs/networks.md."""
    results = {library: read_results(f"architectures_{library}") for library in LIBRARIES}
    found = {library: one["networks"] for library, one in results.items()}
    every = {name: one for networks in found.values() for name, one in networks.items()}
    count = Counter(one["status"] for one in every.values())
    rows = [[library, *_row(networks)] for library, networks in found.items()]
    refused = [[f"`{_short(name)}`", one["reason"]] for name, one in every.items() if one["status"] == "refused"]
    return template("networks").fill(
        exact=count["exact"] + count["close"],
        judged=sum(count[status] for status in JUDGED),
        refused=count["refused"],
        was_refused="is refused" if count["refused"] == 1 else "are refused",
        wrong=count["WRONG"],
        was_wrong="is" if count["WRONG"] == 1 else "are",
        timm=_judged(found["timm"]),
        huggingface=_judged(found["huggingface"]),
        left=_not_tried(sum(one["planned"] for one in results.values()) - len(every), count),
        summary=table(
            [
                "",
                "exact",
                "refused",
                "silently wrong",
                "not built, too large or too slow",
                "median share",
                "median fit",
            ],
            rows,
        ),
        held=sum(one.get("held_layers", 0) > 0 for one in every.values() if one["status"] in ("exact", "close")),
        tolerance=f"{max(one['error'] for one in every.values() if one['status'] in ('exact', 'close')):.0e}",
        reasons=table(["network", "reason"], refused, words=2) if refused else None,
        networks="\n\n".join(folded(library, _networks(networks)) for library, networks in found.items()),
        examples=examples,
        outputs=outputs,
        largest=f"{largest:,}",
    )


def _judged(networks: Mapping[str, Mapping[str, Any]]) -> int:
    return sum(one["status"] in JUDGED for one in networks.values())


def _row(networks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    count = Counter(one["status"] for one in networks.values())
    shares = sorted(one["share"] for one in networks.values() if "share" in one)
    median = f"{shares[len(shares) // 2]:.0%}" if shares else ""
    other = len(networks) - sum(count[status] for status in JUDGED)
    exact = count["exact"] + count["close"]
    ratios = sorted(one["ratio"] for one in networks.values() if "ratio" in one)
    fit = f"{ratios[len(ratios) // 2]:.1f} passes" if ratios else ""
    return [str(exact), str(count["refused"]), str(count["WRONG"]), str(other), median, fit]


def _not_tried(left: int, count: Counter[str]) -> str | None:
    """Say how many networks are missing, and how many ran out of time or memory."""
    parts = [f"{left} were not tried"] if left else []
    failed = count["failed"] + count["ended the process"]
    parts += [f"{failed} ran out of the time or memory that one network gets here"] if failed else []
    return " and ".join(parts) + "." if parts else None


def _networks(networks: Mapping[str, Mapping[str, Any]]) -> str:
    lines = []
    for name, one in sorted(networks.items()):
        share = f"{one['share']:.1%}" if "share" in one else ""
        error = f"{one['error']:.0e}" if "error" in one else ""
        held = str(one["held_layers"]) if one.get("held_layers") else ""
        ratio = f"{one['ratio']:.1f}" if "ratio" in one else ""
        lines.append([f"`{_short(name)}`", one["status"], share, error, held, ratio])
    return table(["network", "", "share", "largest difference", "layers held fixed", "fit"], lines)


def _short(name: str) -> str:
    return name.partition("/")[2]
