"""Install the built wheel where nothing but its declared core dependencies can be imported, and use it as a user would.

    python .ci/installed.py dist/infoform-*.whl

A fresh environment gets the wheel, and links to the packages that its metadata asks for (and those that they ask for)
in the environment that runs this: no download, seconds. It shows that the declared dependencies suffice for the
command and a fit, that files are not taken from the checkout, and that a missing extra is told in one sentence.
"""

import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from email.parser import HeaderParser
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

MODEL = "from torch import nn\n\ndef net():\n    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))\n"
PREPARE = """
import numpy, torch
from model import net
torch.manual_seed(0)
torch.save(net().state_dict(), "net.pt")
x = numpy.random.default_rng(0).normal(size=(50, 3))
numpy.savez("data.npz", x=x, y=(x[:, 0] > 0).astype(int))
"""
SUCCEED = (
    "--version",
    "--help",
    "fit run --model model.py:net --weights net.pt --data data.npz",
    "tune run",
    "predict run --data data.npz",
)
FAIL = {
    "predict run --data data.csv": "pip install 'infoform[tables]'",
    "bench": "clone the repository",
}


def main(wheel: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "env", with_pip=False, symlinks=True)
        python = folder / "env" / "bin" / "python"
        packages = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip())
        linked = link_closure(core_requirements(wheel), packages)
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
        run(pip, folder)
        where = run([python, "-c", "import infoform, infoform.laplace; print(infoform.__file__)"], folder).strip()
        assert Path(where).is_relative_to(packages), f"infoform comes from {where}, not from the wheel"
        work = folder / "work"
        work.mkdir()
        (work / "model.py").write_text(MODEL)
        (work / "data.csv").write_text("a,b,c,y\n1,2,3,0\n")
        run([python, "-c", PREPARE], work)
        command = folder / "env" / "bin" / "infoform"
        for line in SUCCEED:
            run([command, *line.split()], work)
        assert (work / "run" / "predict.csv").read_text().count("\n") == 51
        for line, said in FAIL.items():
            done = subprocess.run([command, *line.split()], cwd=work, capture_output=True, text=True, check=False)
            assert done.returncode == 1, f"{line}: {done.returncode}\n{done.stderr}"
            assert said in done.stderr, done.stderr
            assert "Traceback" not in done.stderr, done.stderr
    print(f"{wheel.name} works with its core dependencies alone: {', '.join(sorted(linked))}")


def core_requirements(wheel: Path) -> list[Requirement]:
    """Return what the wheel's metadata asks for without extras."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    return _needed(metadata.get_all("Requires-Dist") or [])


def link_closure(requirements: list[Requirement], packages: Path) -> set[str]:
    """Link the packages asked for, and all that they ask for, into an environment."""
    linked: set[str] = set()
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in linked:
            continue
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # pip did not find it necessary here either
        assert requirement.specifier.contains(found.version, prereleases=True), f"{requirement} but {found.version}"
        linked.add(name)
        tops = {file.parts[0] for file in found.files or [] if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            target = packages / top
            if not target.exists():
                target.symlink_to(Path(str(found.locate_file(top))))
        waiting += _needed(found.requires or [])
    return linked


def _needed(lines: list[str]) -> list[Requirement]:
    parsed = [Requirement(line) for line in lines]
    return [one for one in parsed if one.marker is None or one.marker.evaluate({"extra": ""})]


def run(command: list[object], folder: Path) -> str:
    """Run a command that must succeed, and return what it printed."""
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(part) for part in command)}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
