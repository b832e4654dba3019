"""Run the campaign, or parts of it; parts that were measured at the present commit are not measured again."""

import importlib
import os
import sys
import time
import warnings
from typing import Any

from infoform import UntrainedWarning
from infoform.common.provenance import commit

from ..common import ROOT, command_line, environment, read_results, rounded, write_json, write_page, write_results
from . import PARTS, __doc__
from .page import page

NO_QUICK_FORM = ("mutation", "line_coverage")  # each takes longer than all of CI may


def main() -> int:
    parser = command_line(__doc__)
    parser.add_argument("--quick", action="store_true", help="a small form of every part, in minutes")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="this part, again if need be")
    parser.add_argument("--again", action="store_true", help="also parts that were measured at this commit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="after so many, no part begins another piece of its work")
    options = parser.parse_args()
    if options.seconds is not None:
        os.environ["TRUST_ENDS"] = str(time.time() + options.seconds)
    warnings.simplefilter("ignore", UntrainedWarning)  # random networks, on purpose
    if options.page:
        write_page("trust", page(read_results("trust")))
        return 0
    found: dict[str, Any] = {} if options.quick else read_results("trust", empty={})
    now, failed = commit(ROOT / "src" / "infoform"), 0
    for name in options.only or PARTS:
        if options.quick and name in NO_QUICK_FORM and not options.only:
            continue
        earlier = found.get(name, {})
        whole = not earlier.get("quick") and not earlier.get("result", {}).get("left")
        measured = earlier.get("commit") == now and whole and now is not None and not now.endswith("+")
        if measured and not options.again and not options.only:
            continue
        try:
            part = importlib.import_module(f"{__package__}.{name}")
        except ModuleNotFoundError as error:
            print(f"{name}: not there ({error})", flush=True)
            continue
        print(f"{name} ...", flush=True)
        started = time.time()
        result = part.run(quick=options.quick, seed=options.seed)
        found[name] = {
            "commit": now,
            "quick": options.quick,
            "seed": options.seed,
            "seconds": round(time.time() - started, 1),
            "environment": environment(),
            "result": rounded(result),
        }
        for one in result.get("claims", []):
            failed += not one["holds"]
            print(f"  {'holds' if one['holds'] else 'FAILS'}: {one['claim']}: {one['figure']}", flush=True)
        if options.quick:
            write_json(ROOT / "out" / "trust.json", found)
        else:
            found = read_results("trust", empty={}) | {name: found[name]}  # another process may have done other parts
            write_results("trust", found)
            write_page("trust", page(found))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
