"""What verbs and experiments write and reports read: typed values with a version, one file each.

To add a verb's record, write a file with the frozen dataclass of its result, and a line in `RESULTS`.
"""

from typing import Any

from infoform.records.acquire import AcquireResult
from infoform.records.compare import CompareResult
from infoform.records.evaluate import EvaluateResult
from infoform.records.export import ExportResult
from infoform.records.fit import FitResult
from infoform.records.plan import PlanResult
from infoform.records.predict import PredictResult
from infoform.records.tune import TuneResult
from infoform.records.verb_record import VerbRecord, read_record

RESULTS: dict[str, type[Any]] = {  # name of the file in a run's folder -> its result, in the order of a report
    "fit": FitResult,
    "update": FitResult,
    "plan": PlanResult,
    "tune": TuneResult,
    "evaluate": EvaluateResult,
    "compare": CompareResult,
    "predict": PredictResult,
    "acquire": AcquireResult,
    "export": ExportResult,
}
COMMANDS: dict[str, str] = {name: f"infoform {name}" for name in RESULTS} | {"update": "infoform fit --update"}

__all__ = [
    "COMMANDS",
    "RESULTS",
    "AcquireResult",
    "CompareResult",
    "EvaluateResult",
    "ExportResult",
    "FitResult",
    "PlanResult",
    "PredictResult",
    "TuneResult",
    "VerbRecord",
    "read_record",
]
