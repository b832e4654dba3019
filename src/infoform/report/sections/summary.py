"""In short: the numbers that matter, and what they mean in plain words."""

from collections.abc import Mapping
from typing import Any

from infoform.report.blocks import Block, Card, Cards, Section, Sentences, Text
from infoform.report.inputs import Run
from infoform.report.words import counted, listed, number, percent, precision, size, sure_sentence

CLOSE = 0.005  # half a percentage point: not worth a word


def section(run: Run) -> Section:
    cards, sentences = _scores(run)
    sentences += _unknown(run.result("evaluate").get("unknown"), cards)
    sentences += _posterior(run, cards)
    blocks: list[Block] = [Cards(cards)] if cards else []
    if sentences:
        blocks.append(Sentences(sentences))
    if run.outdated:
        verbs = listed(f"'infoform {verb}'" for verb in run.outdated)
        text = f"The posterior was changed after {verbs} had run: run it again, these numbers are of the earlier one."
        blocks.append(Text(text, "warning"))
    missing = _missing(run)
    if missing:
        blocks.append(Text(f"Not measured yet: {'; '.join(missing)}.", "hint"))
    return Section("In short", blocks)


def _scores(run: Run) -> tuple[list[Card], list[str]]:
    found = run.result("evaluate")
    if not found:
        return [], []
    return _intervals(found) if run.kind == "regression" else _classes(found)


def _classes(found: Mapping[str, Any]) -> tuple[list[Card], list[str]]:
    scores, plain = found["scores"], found["plain_scores"]
    cards = [
        Card(percent(scores["accuracy"]), "right answers", f"network alone {percent(plain['accuracy'])}"),
        Card(
            percent(scores["ece"]),
            "mean gap between confidence and right answers",
            f"network alone {percent(plain['ece'])}",
        ),
    ]
    told = f"Of {counted(found['examples'], 'test example')}, it answered {percent(scores['accuracy'])} rightly"
    sentences = [f"{told} (the network alone: {percent(plain['accuracy'])})."]
    if "by_confidence" in found:
        sure, table = found["sure"], found["by_confidence"]
        place = table["confidence"].index(sure["confidence"])
        alone = table["plain_right"][place]
        told = sure_sentence(sure["confidence"], sure["examples"], sure["right"])
        beside = f" The network alone was that sure {table['plain_examples'][place]:,} times"
        sentences.append(told + beside + (f", and right in {percent(alone)} of them." if alone is not None else "."))
        sentences.append(_trust(found["mean_confidence"], scores["accuracy"], "It"))
        sentences.append(_trust(found["plain_mean_confidence"], plain["accuracy"], "The network alone"))
    return cards, sentences


def _trust(confidence: float, accuracy: float, who: str) -> str:
    said = f"{who} is {percent(confidence)} sure on average and {percent(accuracy)} right"
    if abs(confidence - accuracy) < CLOSE:
        return f"{said}: its confidence can be taken at its word."
    return f"{said}: {'over-confident' if confidence > accuracy else 'more careful than it need be'}."


def _intervals(found: Mapping[str, Any]) -> tuple[list[Card], list[str]]:
    scores, plain = found["scores"], found["plain_scores"]
    cards = [
        Card(number(scores["rmse"], 3), "typical error (RMSE)", f"network alone {number(plain['rmse'], 3)}"),
        Card(
            percent(scores["coverage_90"]),
            "truths inside 90 % intervals",
            f"network alone {percent(plain['coverage_90'])}",
        ),
    ]
    sentences = [
        f"On {counted(found['examples'], 'test example')} it is off by {number(scores['rmse'], 3)} (root mean square).",
        f"Its 90 % intervals held the truth {percent(scores['coverage_90'])} of the time, its 95 % intervals "
        f"{percent(scores['coverage_95'])}: {_width(scores['coverage_90'] - 0.9)}.",
        f"With the network alone and the noise of its training data it is {percent(plain['coverage_90'])} and "
        f"{percent(plain['coverage_95'])}.",
    ]
    return cards, sentences


def _width(gap: float) -> str:
    if abs(gap) < 0.02:
        return "about as wide as they should be"
    return "wider than they need be" if gap > 0 else "too narrow"


def _unknown(found: Mapping[str, Any] | None, cards: list[Card]) -> list[str]:
    if found is None:
        return []
    name = "epistemic" if "epistemic" in found else "entropy"
    auroc, plain = found[name]["auroc"], found.get("plain_entropy", {}).get("auroc")
    cards.append(
        Card(
            percent(auroc),
            "unknown told from known (AUROC)",
            f"network alone {percent(plain)}" if plain is not None else "50 % is guessing",
        )
    )
    told = (
        f"Given one known and one unknown example, it is less sure of the unknown one {percent(auroc)} of the time "
        "(50 % would be guessing)"
    )
    beside = "" if plain is None else f"; the network alone {percent(plain)}"
    sentences = [f"{told}{beside}."]
    if "mean_confidence" in found:
        sentences.append(
            f"On {counted(found['examples'], 'unknown example')} it is {percent(found['mean_confidence'])} sure on "
            f"average, the network alone {percent(found['plain_mean_confidence'])}: less is better there."
        )
    return sentences


def _posterior(run: Run, cards: list[Card]) -> list[str]:
    fit, tune = run.fit, run.result("tune")
    if not fit:
        return []
    taken = fit["total_bytes"]
    weights = fit.get("weight_bytes")
    beside = f"the network's weights take {size(weights)}" if weights is not None else ""
    cards.append(Card(size(taken), "memory of the uncertainty", beside))
    told = f"The uncertainty (structure {fit['settings']['structure']}) takes {size(taken)}"
    sentences = [f"{told}{', ' + beside if beside else ''}."]
    if tune.get("method") == "search":
        count = counted(len(tune["trials"]), "trial")
        chosen = f"τ = {precision(tune['prior_precision'])}"
        sentences.append(f"How far weights may stray, {chosen}, was chosen by {count} on validation data.")
    elif tune:
        chosen = f"τ = {precision(tune['prior_precision'])}"
        sentences.append(f"How far weights may stray, {chosen}, was chosen by the evidence, from the training data.")
    else:
        sentences.append(
            f"How far weights may stray, τ = {precision(fit['prior_precision'])}, was not tuned: run 'infoform tune'."
        )
    return sentences


def _missing(run: Run) -> list[str]:
    missing = []
    if "evaluate" not in run.records:
        missing.append(f"scores ('infoform evaluate {run.path} --data TEST')")
    elif "unknown" not in run.result("evaluate"):
        missing.append(f"data of another kind ('infoform evaluate {run.path} --data TEST --unknown OTHER')")
    return missing
