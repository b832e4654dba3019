"""Install what was built where nothing but its declared core dependencies can be imported, and use it as a user would.

    python .ci/installed.py dist/infoform-*.whl dist/infoform-*.tar.gz

A fresh environment for each gets the wheel or the sdist, and links to the packages that its metadata asks for (and
those that they ask for) in the environment that runs this: seconds, and no download but that of an sdist's build
backend. It shows that the declared dependencies suffice for the command and a fit, that files are not taken from the
checkout, and that a missing extra is told in one sentence.
"""

import re
import subprocess
import sys
import tarfile
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
    "report run": "pip install 'infoform[report]'",
    "bench": "clone the repository",
}


IN_SDIST = ("tests/test_laplace.py", "docs/index.md", "examples/calibrate.py", "mkdocs.yml", "CHANGELOG.md", "LICENSE")


def main(built: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "env", with_pip=False, symlinks=True)
        python = folder / "env" / "bin" / "python"
        packages = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip())
        linked = link_closure(core_requirements(built), packages)
        alone = ["--no-deps", *(["--no-index"] if built.suffix == ".whl" else [])]  # an sdist's backend is downloaded
        run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *alone, built], folder)
        where = run([python, "-c", "import infoform, infoform.laplace; print(infoform.__file__)"], folder).strip()
        assert Path(where).is_relative_to(packages), f"infoform comes from {where}, not from {built.name}"
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
    print(f"{built.name} works with its core dependencies alone: {', '.join(sorted(linked))}")


def core_requirements(built: Path) -> list[Requirement]:
    """Return what the metadata of a wheel or an sdist asks for without extras."""
    metadata = HeaderParser().parsestr(read_metadata(built))
    return _needed(metadata.get_all("Requires-Dist") or [])


def read_metadata(built: Path) -> str:
    """Return the metadata; of an sdist, if it holds what those who package it need."""
    if built.suffix == ".whl":
        with zipfile.ZipFile(built) as archive:
            name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            return archive.read(name).decode()
    with tarfile.open(built) as sdist:
        top = built.name.removesuffix(".tar.gz")
        names = set(sdist.getnames())
        missing = [name for name in IN_SDIST if f"{top}/{name}" not in names]
        assert not missing, f"{built.name} lacks {', '.join(missing)}"
        file = sdist.extractfile(f"{top}/PKG-INFO")
        assert file is not None
        return file.read().decode()


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
    for argument in sys.argv[1:]:
        main(Path(argument).resolve())
