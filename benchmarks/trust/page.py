"""The page of the campaign: what holds, by which figure, first; then how it was measured."""

from collections.abc import Iterator, Mapping
from typing import Any

from infoform.pages.markdown import bullets, facts, folded, table

from . import PARTS

MEANING = """## What it means

Software that states probabilities must be above suspicion itself. These figures come from a campaign that tries to
break the library. `make trust` runs all of it, in hours; `make trust-quick` runs a small form
of every part in minutes. A claim that does not hold makes the command fail. What is promised about files from
strangers is in `SECURITY.md`.

- **Serving from threads** is safe: a prediction works on a private shallow copy of the modules, so that threads share
  a model and a posterior.
- **Every pass of a fit sees the same data**, or the fit says that it did not: the digest of a pass is always taken.
- **Variances do not cancel.** They agree with arithmetic of 80 digits, also where a prior is 10¹² times stiffer along
  some directions than along others.
- **One seed, one answer** in every process. Other batches and other numbers of threads round otherwise, and nothing
  else changes.

To repeat one part: `python -m benchmarks.trust --only threads`. The results are in `benchmarks/results/trust.json`."""
MUTANTS = """## Mutants

A mutant is the code with one operator, comparison or number changed. {tried} in these rooms {was} tried, each against
the tests that run its lines. A mutant that changes no result (a bound of a chunk, a faster way to the same numbers)
does not count; each of them is listed with its reason."""

OUTCOMES = {"survived": "", "not run": " (no test runs the line)", "undecided": " (undecided after a minute)"}


def page(found: Mapping[str, Any]) -> str:
    """Return the page from the results of all parts that were run."""
    claims = [(name, one) for name in PARTS if name in found for one in found[name]["result"].get("claims", [])]
    held = sum(one["holds"] for _, one in claims)
    short = [name for name in PARTS if name in found and found[name]["quick"]]
    summary = f"{held} of {len(claims)} claims hold, in {len({name for name, _ in claims})} parts of the campaign."
    if short:
        summary += f" Of these, {len(short)} were run in the quick form: {', '.join(PARTS[name] for name in short)}."
    rows = [[PARTS[name], one["claim"], one["figure"], "yes" if one["holds"] else "**no**"] for name, one in claims]
    head = table(["what was attacked", "claim", "figure", "holds"], rows, words=2)
    return "\n\n".join([f"# Trust\n\n{summary}\n\n{head}\n\n{MEANING}", *_sections(found)])


def _sections(found: Mapping[str, Any]) -> Iterator[str]:
    missing = [text for name, text in PARTS.items() if name not in found]
    if missing:
        yield "Not run yet: " + "; ".join(missing) + "."
    left = [
        f"{PARTS[name]}: {', '.join(one['result']['left'])}" for name, one in found.items() if one["result"].get("left")
    ]
    if left:
        yield "Not finished; what is left to do:\n\n" + bullets(left)
    if "mutation" in found:
        yield _mutants(found["mutation"]["result"])
    if "line_coverage" in found:
        yield _covered(found["line_coverage"]["result"])
    if "licences" in found:
        rows = [[one["package"], one["version"], one["licence"]] for one in found["licences"]["result"]["rows"]]
        listed = table(["package", "version", "licence"], rows, words=3)
        yield f"## Licences\n\nWhat `pip install infoform` brings, and what that needs in turn:\n\n{listed}"
    runs = {
        PARTS[name]: f"{'quick form' if one['quick'] else 'whole'}, {one['seconds']:g} s, commit {one['commit']}, "
        f"{one['environment']['date']}, load {one['environment']['load']}"
        for name, one in found.items()
    }
    yield folded("The runs: seconds, commits, load of the machine", facts(runs))


def _mutants(result: Mapping[str, Any]) -> str:
    rows = [
        [f"`{room}`", str(one["tried"]), str(one["killed"]), str(one["equivalent"]), f"{one['share']:.0%}"]
        for room, one in result["rooms"].items()
    ]
    head = table(["room", "mutants tried", "killed", "change nothing", "killed of the others"], rows)
    some = f"{result['tried']:,} of the {result['possible']:,} that are possible"
    if result["interval"] is None:
        text = MUTANTS.format(tried=f"All {result['possible']:,} that are possible", was="were")
    else:
        low, high = result["interval"]
        text = MUTANTS.format(tried=some, was=f"(drawn at random by rooms, seed {result['seed']}) were")
        text += f" Of all, the tests kill between {low:.1%} and {high:.1%} (Wilson's 95 % interval)."
    alive = [_mutant(one) + OUTCOMES[one["outcome"]] for one in result["survivors"]]
    same = [f"{_mutant(one)} ({one['reason']})" for one in result["equivalent"]]
    lists = {"Mutants that are alive": alive, "Mutants that change nothing, and why": same}
    return "\n\n".join([text, head, *(folded(title, bullets(rows)) for title, rows in lists.items() if rows)])


def _mutant(one: Mapping[str, Any]) -> str:
    return f"`{one['file']}`, line {one['line']}: `{one['change']}`"


def _covered(result: Mapping[str, Any]) -> str:
    return f"## Lines and branches\n\n{result['said']}"
