"""Nothing but common/whole_files.py writes under a final name: every other file goes through it."""

import re
from pathlib import Path

import pytest

import infoform

ROOT = Path(infoform.__file__).parent
WRITES = re.compile(
    r"""\.write_(text|bytes)\(              # pathlib
    | \bopen\([^)]*["'][wax]b?\+?["']       # open(path, "w"), path.open("wb")
    | \bsave_file\( | \btorch\.save\((?!.*\bfile\)) | \bnp\.(save|savez|savetxt)\w*\( | \.tofile\(
    | \.to_(csv|parquet|json)\((?!file\)) | \.savefig\((?!file\b)
    | \bos\.(replace|rename)\( | \bmkstemp\( | \bNamedTemporaryFile\(""",
    re.VERBOSE,
)
ALLOWED = {
    "common/whole_files.py": 3,  # where it is done: the file aside, a device, the renaming
    "cli/run_change.py": 2,  # gives staged files, which are whole, their names
    "export/targets/pte.py": 1,  # in a temporary folder, from which export/write.py takes what was checked
    "pretrained.py": 1,  # gives staged files, which are whole, their names
    "integrations/mlflow.py": 1,  # in a temporary folder, from which MLflow copies into its own store
    "experiments/claims.py": 1,  # a lock, which has no content
}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_written_through_whole_files(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if WRITES.search(line)]
    code = [line for line in lines if not re.search(r"""f?["'].*torch\.save\(model""", line)]  # advice to users
    assert len(code) == ALLOWED.get(path.relative_to(ROOT).as_posix(), 0), code
