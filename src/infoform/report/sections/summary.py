"""The first section of a run: the numbers that matter, and what they mean in plain words."""

from collections.abc import Sequence

from infoform.records import EvaluateResult, FitResult, TuneResult
from infoform.records.evaluate import UnknownResult
from infoform.report.blocks import Block, Card, Cards, Section, Sentences, Text
from infoform.report.inputs import Run
from infoform.report.sections.novelty import novelty_sentences
from infoform.report.words import counted, listed, number, percent, precision, size, sure_sentence

CLOSE = 0.005  # half a percentage point: not worth a word
WORDS = {
    "entropy": "entropy",
    "mutual_information": "mutual information",
    "epistemic": "spread for lack of data",
    "novelty": "novelty",
}


def section(run: Run) -> Section:
    cards, sentences = _scores(run.evaluate)
    if run.evaluate is not None and run.evaluate.unknown is not None:
        cards += _unknown_card(run.evaluate.every_unknown)
        for unknown in run.evaluate.every_unknown:
            sentences += _unknown(unknown, several=len(run.evaluate.every_unknown) > 1)
    if run.evaluate is not None:
        sentences += novelty_sentences(run.evaluate)
    if run.fit is not None:
        sentences += _posterior(run.fit, run.tune, cards)
    blocks: list[Block] = [Cards(cards)] if cards else []
    if sentences:
        blocks.append(Sentences(sentences))
    if run.outdated:
        verbs = listed(f"'infoform {verb}'" for verb in run.outdated)
        text = f"The posterior was changed after {verbs} had run: these numbers are of the earlier one. Run them again."
        blocks.append(Text(text, "warning"))
    missing = _missing(run)
    if missing:
        blocks.append(Text(f"Not measured yet: {'; '.join(missing)}.", "hint"))
    return Section("In short", blocks)


def _scores(result: EvaluateResult | None) -> tuple[list[Card], list[str]]:
    if result is None:
        return [], []
    return _classes(result) if result.intervals is None else _intervals(result)


def _classes(result: EvaluateResult) -> tuple[list[Card], list[str]]:
    accuracy, plain_accuracy = (scores.get("accuracy") for scores in (result.scores, result.plain_scores))
    cards = [
        Card(percent(accuracy), "right answers", f"network alone {percent(plain_accuracy)}"),
        Card(
            percent(result.scores.get("ece")),
            "mean gap between confidence and right answers",
            f"network alone {percent(result.plain_scores.get('ece'))}",
        ),
    ]
    told = f"Of {counted(result.examples, 'test example')}, it answered {percent(accuracy)} rightly"
    sentences = [f"{told} (the network alone: {percent(plain_accuracy)})."]
    if result.confidences is not None:
        sure, table = result.confidences.sure, result.confidences.by_confidence
        place = table.confidence.index(sure.confidence)
        alone = table.plain_right[place]
        told = sure_sentence(sure.confidence, sure.examples, sure.right)
        beside = f" The network alone was that sure {table.plain_examples[place]:,} times"
        sentences.append(told + beside + (f", and right in {percent(alone)} of them." if alone is not None else "."))
        sentences.append(_trust(result.confidences.mean_confidence, accuracy, "It"))
        sentences.append(_trust(result.confidences.plain_mean_confidence, plain_accuracy, "The network alone"))
    return cards, sentences


def _trust(confidence: float, accuracy: float | None, who: str) -> str:
    said = f"{who} is {percent(confidence)} sure on average and {percent(accuracy)} right"
    if accuracy is None:
        return f"{said}."
    if abs(confidence - accuracy) < CLOSE:
        return f"{said}: its confidence can be taken at its word."
    return f"{said}: {'over-confident' if confidence > accuracy else 'more careful than it need be'}."


def _intervals(result: EvaluateResult) -> tuple[list[Card], list[str]]:
    scores, plain = result.scores, result.plain_scores
    error, inside = number(scores.get("rmse"), 3), scores.get("coverage_90")
    plain_inside = percent(plain.get("coverage_90"))
    cards = [
        Card(error, "typical error (RMSE)", f"network alone {number(plain.get('rmse'), 3)}"),
        Card(percent(inside), "truths inside 90 % intervals", f"network alone {plain_inside}"),
    ]
    sentences = [
        f"On {counted(result.examples, 'test example')} it is off by {error} (root mean square).",
        f"Its 90 % intervals held the truth {percent(inside)} of the time, its 95 % intervals "
        f"{percent(scores.get('coverage_95'))}{_width(inside)}.",
        f"With the network alone and the noise of its training data it is {plain_inside} and "
        f"{percent(plain.get('coverage_95'))}.",
    ]
    return cards, sentences


def _width(inside: float | None) -> str:
    """Return whether intervals that should hold 90 % of the truths are too wide or too narrow."""
    if inside is None:
        return ""
    gap = inside - 0.9
    if abs(gap) < 0.02:
        return ": about as wide as they should be"
    return ": wider than they need be" if gap > 0 else ": too narrow"


def _unknown_card(sets: Sequence[UnknownResult]) -> list[Card]:
    """Return the headline: how well unknown data are told from known ones by the best measure; of the hardest set."""
    found = [(best, one) for one in sets if (best := one.best_separation) is not None]
    if not found:
        return []
    (measure, scores), hardest = min(found, key=lambda pair: pair[0][1].auroc)
    plain = None if hardest.classes is None else hardest.classes.plain_entropy.auroc
    beside = "50 % is guessing" if plain is None else f"network alone {percent(plain)}"
    which = f", '{hardest.name}', the hardest of {len(sets)} sets" if len(sets) > 1 else ""
    return [Card(percent(scores.auroc), f"unknown told from known by {WORDS[measure]} (AUROC){which}", beside)]


def _unknown(unknown: UnknownResult, *, several: bool) -> list[str]:
    if unknown.separation is None:
        return []
    auroc = unknown.separation.auroc
    plain = None if unknown.classes is None else unknown.classes.plain_entropy.auroc
    of = f" of '{unknown.name}'" if several else ""
    told = (
        f"Given one known and one unknown example{of}, it is less sure of the unknown one {percent(auroc)} of the time "
        "(50 % would be guessing)"
    )
    beside = "" if plain is None else f"; the network alone {percent(plain)}"
    sentences = [f"{told}{beside}."]
    if unknown.classes is not None:
        sure, plain_sure = percent(unknown.classes.mean_confidence), percent(unknown.classes.plain_mean_confidence)
        sentences.append(
            f"On {counted(unknown.examples, 'unknown example')}{of} it is {sure} sure on average, the network alone "
            f"{plain_sure}: less is better there."
        )
    return sentences


def _posterior(fit: FitResult, tune: TuneResult | None, cards: list[Card]) -> list[str]:
    taken = size(fit.total_bytes)
    beside = "" if fit.weight_bytes is None else f"the network's weights take {size(fit.weight_bytes)}"
    cards.append(Card(taken, "memory of the uncertainty", beside))
    told = f"The uncertainty (structure {fit.settings.structure}) takes {taken}"
    sentences = [f"{told}{', ' + beside if beside else ''}."]
    chosen = (
        f"The prior precision τ = {precision((tune or fit).prior_precision)}, which says how far weights may stray, was"
    )
    if tune is None:
        sentences.append(f"{chosen} not tuned: run 'infoform tune'.")
    elif tune.searched:
        sentences.append(f"{chosen} chosen by {counted(len(tune.trials), 'trial')} on validation data.")
    else:
        sentences.append(f"{chosen} chosen by the evidence, from the training data.")
    return sentences


def _missing(run: Run) -> list[str]:
    missing = []
    if run.evaluate is None:
        missing.append(f"scores ('infoform evaluate {run.path} --data TEST')")
    elif run.evaluate.unknown is None:
        missing.append(f"data of another kind ('infoform evaluate {run.path} --data TEST --unknown OTHER')")
    return missing
