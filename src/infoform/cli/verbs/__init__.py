"""The verbs: to add one, write a file with a function of its name, and a line in `VERBS`."""

from collections.abc import Callable

from infoform.cli.verbs.acquire import acquire
from infoform.cli.verbs.bench import bench
from infoform.cli.verbs.compare import compare
from infoform.cli.verbs.demo import demo
from infoform.cli.verbs.evaluate import evaluate
from infoform.cli.verbs.export import export
from infoform.cli.verbs.fit import fit
from infoform.cli.verbs.plan import plan
from infoform.cli.verbs.predict import predict
from infoform.cli.verbs.report import report
from infoform.cli.verbs.reproduce import reproduce
from infoform.cli.verbs.tune import tune

VERBS: dict[str, Callable[..., None]] = {  # in the order of --help
    "demo": demo,
    "plan": plan,
    "fit": fit,
    "tune": tune,
    "predict": predict,
    "evaluate": evaluate,
    "compare": compare,
    "acquire": acquire,
    "export": export,
    "report": report,
    "reproduce": reproduce,
    "bench": bench,
}
