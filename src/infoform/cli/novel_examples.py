"""How many examples are called novel, and how well novelty tells unknown examples from known ones."""

from collections import Counter
from typing import TYPE_CHECKING

from infoform.metrics import ood
from infoform.prediction import FALSE_ALARMS
from infoform.records.evaluate import Separation, UnknownNovelty
from infoform.records.novelty import NovelExamples

if TYPE_CHECKING:
    from infoform.prediction import Prediction


def novel_examples(predicted: "Prediction") -> NovelExamples | None:
    """Return the examples that are called novel; None where the fit knows nothing of its inputs."""
    seen = predicted.input_novelty
    if seen is None:
        return None
    novel = seen.novel(FALSE_ALARMS).tolist()
    layers = Counter(layer for layer, strange in zip(seen.strangest_layers, novel, strict=True) if strange)
    return NovelExamples(FALSE_ALARMS, sum(novel), sum(novel) / len(novel), layers.most_common())


def told_by_novelty(known: "Prediction", unknown: "Prediction") -> UnknownNovelty | None:
    """Return how well novelty, and each of its parts, tells unknown examples from known ones; None without it."""
    called = novel_examples(unknown)
    if called is None or known.input_novelty is None:
        return None
    ours, theirs = known.novelty_parts, unknown.novelty_parts
    parts = {name: Separation(**ood(ours[name], theirs[name])) for name in ours}
    return UnknownNovelty(Separation(**ood(known.novelty, unknown.novelty)), parts, called)
