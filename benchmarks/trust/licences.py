"""The licences of the packages that infoform installs, by what their own metadata say."""

from importlib.metadata import PackageNotFoundError, metadata, requires
from typing import Any

from . import claim

ALLOWED = ("MIT", "BSD", "Apache", "PSF", "MPL", "ISC", "HPND", "Python Software Foundation")


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    """Return the licence of every package of the core, and of the packages that these need."""
    rows = [{"package": name, "version": one["Version"], "licence": _licence(one)} for name, one in _needed("infoform")]
    unknown = [row["package"] for row in rows if not any(word in row["licence"] for word in ALLOWED)]
    return {
        "claims": [
            claim("every package of the core has a licence that allows any use", not unknown,
                  f"{len(rows) - len(unknown)} of {len(rows)}" + (f"; look at {', '.join(unknown)}" if unknown else ""))
        ],
        "rows": rows,
    }  # fmt: skip


def _needed(root: str) -> list[tuple[str, Any]]:
    """Return the packages that one needs without extras, and so on, by name."""
    found: dict[str, Any] = {}
    waiting = [root]
    while waiting:
        for line in requires(waiting.pop()) or []:
            if "extra ==" in line or "platform_system" in line or "sys_platform ==" in line:
                continue
            name = line.split(";")[0].split("[")[0].strip().split(" ")[0]
            name = name.rstrip("<>=!~0123456789.,*")
            if name.lower() in found:
                continue
            try:
                found[name.lower()] = metadata(name)
            except PackageNotFoundError:
                continue  # for another machine
            waiting.append(name)
    return sorted(found.items())


def _licence(one: Any) -> str:
    """Return what a package says of its licence: an expression, a classifier, or the first line of its text."""
    if one.get("License-Expression"):
        return str(one["License-Expression"])
    classifiers = [text.split(" :: ")[-1] for text in one.get_all("Classifier", []) if text.startswith("License")]
    if classifiers:
        return "; ".join(classifiers)
    return str(one.get("License") or "not said").strip().splitlines()[0]
