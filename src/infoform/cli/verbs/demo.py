"""`infoform demo`: what the library does, on digits and on a toy regression, in about a minute."""

from pathlib import Path
from typing import Annotated

import typer

from infoform.cli.mistakes import Mistake, say
from infoform.cli.options import Output, check_seed, option
from infoform.cli.record import recorded


def demo(
    context: typer.Context,
    *,
    out: Annotated[Path, option(None, "FOLDER", "Folder for pictures and results.")] = Path("out/demo"),
    seed: Annotated[int, option(None, "N", "Seed of data, training and samples.", callback=check_seed)] = 0,
    output: Output,
) -> None:
    """Show what infoform does, on digits, in about a minute.

    It trains over-confident networks, shows what they answer alone, with a temperature and with posteriors, and writes
    tables, pictures and results.json.

    Examples:

        infoform demo
        infoform demo --seed 1 --out out/another
    """
    import json
    import sys
    from contextlib import redirect_stdout
    from importlib.util import find_spec

    from infoform.demo import __main__ as program
    from infoform.demo.digits import DigitsSettings
    from infoform.demo.toy import ToySettings

    missing = [package for module, package in program.NEEDED.items() if find_spec(module) is None]
    if missing:
        raise Mistake(f"the demo needs {', '.join(missing)}, not installed here: pip install 'infoform[demo]'.")
    with recorded(context, output, folder=out) as record:
        tables = sys.stderr if output.json == "-" else sys.stdout
        if record.progress:
            say("two networks on digits, and eight posteriors: about a minute.")
        with redirect_stdout(tables):
            program.run(DigitsSettings(seed=seed), ToySettings(seed=seed), out=out)
        record.result = json.loads((out / "results.json").read_text())
