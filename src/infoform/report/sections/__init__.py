"""The sections of a run: to add one, write a file with a function `section`, and a line in `SECTIONS`.

A function gets a run and returns its section, or None where the run has nothing for it.
"""

from collections.abc import Callable

from infoform.report.blocks import Section
from infoform.report.inputs import Run
from infoform.report.sections import (
    acquire,
    calibration,
    compare,
    examples,
    intervals,
    landscape,
    memory,
    novelty,
    predictions,
    provenance,
    spectra,
    summary,
    unknown,
)

SECTIONS: dict[str, Callable[[Run], Section | None]] = {  # in the order of the page
    "summary": summary.section,
    "compare": compare.section,
    "calibration": calibration.section,
    "intervals": intervals.section,
    "unknown": unknown.section,
    "novelty": novelty.section,
    "examples": examples.section,
    "predictions": predictions.section,
    "acquire": acquire.section,
    "landscape": landscape.section,
    "spectra": spectra.section,
    "memory": memory.section,
    "provenance": provenance.section,
}
