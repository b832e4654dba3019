"""Every verb of the command as it is killed in tests: what is done before, and last the command that is killed."""

from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree

from folder import make_home
from trees import NETWORK, TREES

from placed_kills import CleanProcess

FIT = ("fit", "all/run", *NETWORK, *TREES, "--keep-curvature", "--quiet", "--rank", "3")
NEW = ("--data", "trees.csv", "--quiet")
MORE = ("--data", "more.csv", "--quiet")
COMPARE = ("compare", "all/run", *MORE, "--validation", "few.csv", "--method", "temperature", "--method", "last layer",
           "--resamples", "100")  # fmt: skip
VERBS: dict[str, tuple[Sequence[str], ...]] = {
    "fit": (FIT,),
    "fit with a checkpoint": ((*FIT, "--checkpoint", "all/part"),),
    "fit in groups": ((*FIT, "--checkpoint", "all/part", "--max-memory", "4MB"),),
    "fit again": (FIT, ("predict", "all/run", *NEW), (*FIT, "--force", "--prior-precision", "3")),
    "update": (FIT, ("predict", "all/run", *NEW), ("fit", "all/run", "--update", *MORE)),
    "second update": (FIT, ("fit", "all/run", "--update", *MORE), ("fit", "all/run", "--update", "--data", "few.csv")),
    "tune": (FIT, ("tune", "all/run", *NEW, "--trials", "3")),
    "tune by evidence": (FIT, ("tune", "all/run")),
    "tune again": (
        FIT,
        ("tune", "all/run", *NEW, "--trials", "3"),
        ("tune", "all/run", *NEW, "--trials", "4", "--restart"),
    ),
    "predict": (FIT, ("predict", "all/run", *NEW, "--batch-size", "20")),
    "predict elsewhere": (FIT, ("predict", "all/run", *NEW, "--out", "all/out.csv", "--json", "all/out.json")),
    "evaluate": (FIT, ("evaluate", "all/run", *NEW)),
    "acquire": (FIT, ("acquire", "all/run", *NEW, "--number", "3", "--samples", "5")),
    "plan": (FIT, ("plan", "all/run", "--memory", "2KB", "--apply")),
    "compare": (FIT, COMPARE),
    "report": (FIT, ("evaluate", "all/run", *NEW), ("report", "all/run")),
    "export": (FIT, ("export", "all/run", "--to", "onnx", "--kind", "heads", "--samples", "4")),
}
SLOW = ("export",)  # too slow for CI


def make_folder() -> None:
    """Make what the verbs need in the present folder."""
    make_home()
    rows = Path("more.csv").read_text().splitlines(keepends=True)
    Path("few.csv").write_text("".join(rows[:9]))


def warm_up(commands: CleanProcess, *, slow: bool = False) -> None:
    """Have the process import all that the verbs need; in the present folder, which has the user's files."""
    verbs = ("fit", "tune", "predict", "evaluate", "acquire", "plan", "compare", "report", *(SLOW if slow else ()))
    for arguments in (VERBS[verb][-1] for verb in verbs):
        assert commands.warm_up(arguments) == 0, arguments
    rmtree("all")
