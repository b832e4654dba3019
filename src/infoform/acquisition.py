"""Which inputs to label next: those whose answers would tell most about the weights.

by="variance"             the epistemic variance of the prediction, summed over outputs    MacKay 1992
by="mutual_information"   between answer and weights                                       Houlsby et al. 2011 (BALD)

Chosen one by one, n near-duplicates would all score alike. The greedy batch therefore takes each chosen point's label
y for observed before it chooses the next. What y would be is not known, but how much it would narrow the M sampled
outputs f (M, N, C) of the whole pool is, to second order:

    Cov(f | y) = Cov(f) − Cov(f, y) Cov(y)⁻¹ Cov(y, f),    Cov(y) = Cov(μ) + E[R],    Cov(f, y) = Cov(f, μ)

with μ = E[y | f] (the mean, or the probabilities) and R = Cov(y | f), the noise of the target, which for softmax and
sigmoid is the likelihood's curvature. For regression this is Gaussian conditioning. With deviations D (M, N C) of f and
Y (M, C) of μ at the chosen point, D ← T^(1/2) D where T = I − Y (YᵀY + (M − 1) R)⁺ Yᵀ: the pool's covariance
(N C, N C) is never formed.

Labels only narrow: no input gains from the labels of others, to second order. So only the inputs with the best scores
of a large pool, in closed form, get sampled outputs; more of them where the batch could have taken one of the others.
"""

from collections.abc import Iterable, Sized
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from infoform.common.checks import check_choice, check_whole
from infoform.common.progress import known_length, progress_bar
from infoform.common.randomness import isolated
from infoform.likelihoods import Likelihood
from infoform.network.batches import Batch, batch_size, device_of, read_batch, select_rows
from infoform.predicting.kinds import MANY_OUTPUTS
from infoform.predicting.predictor import KINDS, Predictor
from infoform.predicting.resumable_batches import BatchCodec, BatchStore, over_batches
from infoform.predicting.sampled_networks import SampledOutputs
from infoform.prediction import Prediction, select_examples

if TYPE_CHECKING:
    from infoform.laplace import Laplace

SCORES = ("variance", "mutual_information")
SHORT = 128  # inputs of a large pool that get sampled outputs at first, or ...
TIMES = 4  # ... so many for each that is to be chosen


@dataclass(frozen=True)
class Acquisition:
    """What was chosen of a pool, the best first.

    Args:
        positions: places in the pool, (n,).
        scores: scores when they were chosen, less what the labels of those before them would tell, (n,).
        alone: scores without any of the others, (n,).
        prediction: predictions of the chosen inputs.
    """

    positions: Tensor  # (n,)
    scores: Tensor  # (n,)
    alone: Tensor  # (n,)
    prediction: Prediction


def acquire(
    laplace: "Laplace",
    pool_loader: Iterable[Any],
    n: int,
    *,
    by: str = "variance",
    kind: str = "linear-mc",
    samples: int = 100,
    seed: int | None = None,
    greedy: bool = True,
    keep: BatchStore | None = None,
    progress: bool = True,
) -> Tensor:  # (n,)
    """Return the n inputs of a pool to label next, the best first.

    Args:
        laplace: a fitted posterior.
        pool_loader: inputs without labels, in a fixed order.
        n: how many inputs to choose.
        by: "variance" (the epistemic one, summed over outputs) or "mutual_information" (of answer and weights).
        kind: way of predicting, as in `Laplace.predict`; "linear" is for `greedy=False`.
        samples: number of sampled networks.
        seed: seed of the networks; the posterior's own unless given.
        greedy: whether each chosen input counts as labelled before the next is chosen; else the n best scores are
            taken.
        keep: store of finished batches, as in `Laplace.predict_loader`.
        progress: whether to show a progress bar.

    Returns:
        Positions in the pool loader's order, (n,).

    Raises:
        ValueError: if an option is unknown, the pool has fewer than n inputs or a random order, or a score is not
            finite.

    Example:
        ```python
        import torch, infoform
        data = [(torch.randn(20, 3), torch.randint(2, (20,)))]
        laplace = infoform.Laplace(torch.nn.Linear(3, 2), "classification").fit(data, progress=False)
        assert infoform.acquire(laplace, [torch.randn(30, 3)], 5, samples=10, progress=False).shape == (5,)
        ```
    """
    how: dict[str, Any] = {"by": by, "kind": kind, "samples": samples, "seed": seed}
    return choose_inputs(laplace, pool_loader, n, **how, greedy=greedy, keep=keep, progress=progress).positions


def choose_inputs(
    laplace: "Laplace",
    pool_loader: Iterable[Any],
    n: int,
    *,
    by: str = "variance",
    kind: str = "linear-mc",
    samples: int = 100,
    seed: int | None = None,
    greedy: bool = True,
    keep: BatchStore | None = None,
    progress: bool = True,
) -> Acquisition:
    """Return what `acquire` returns, with scores and predictions; the arguments are the same."""
    check_whole("n", n)
    check_whole("samples", samples, least=2)
    check_choice("by", by, SCORES)
    check_choice("kind", kind, KINDS)
    if greedy and kind == "linear":
        raise ValueError(
            "a greedy batch needs sampled outputs, which kind='linear' does not have; "
            "use kind='linear-mc' or 'mc', or greedy=False."
        )
    sampler = getattr(pool_loader, "sampler", None)
    if isinstance(sampler, RandomSampler | SubsetRandomSampler | WeightedRandomSampler):
        raise ValueError(
            "positions in the pool mean nothing if its order is random, as with this loader's "
            f"{type(sampler).__name__}; use shuffle=False."
        )
    if laplace.likelihood.joins:
        raise ValueError("acquire chooses among inputs with one answer each, and this network has several heads.")
    if laplace._fitted().fit.summary.positions > 1:
        raise ValueError(
            "acquire chooses among inputs with one answer each, and this network answers at positions; rank inputs by "
            "predict_loader(pool_loader)[0].mutual_information.flatten(1).sum(1)."
        )
    seed = laplace.settings.seed if seed is None else seed
    if not greedy:
        laplace.posterior()
        with isolated(seed, loader=pool_loader):
            prediction, _ = laplace.predict_loader(
                pool_loader, kind=kind, samples=samples, seed=seed, keep=keep, progress=progress
            )
        _check_size(n, len(prediction))
        scores = _score(prediction, by)
        best = scores.argsort(descending=True, stable=True)[:n].cpu()
        return Acquisition(best, scores[best], scores[best], select_examples(prediction, best))
    size = _pool_size(pool_loader)
    outputs = laplace._fitted().fit.summary.num_outputs
    if kind == "linear-mc" and size is not None and size > 4 * _shortlist(n) and outputs <= MANY_OUTPUTS:
        return _lazily(laplace, pool_loader, n, by=by, samples=samples, seed=seed, keep=keep, progress=progress)
    drawn, plain = _pool_outputs(laplace, pool_loader, samples, kind, seed, keep, progress=progress)
    _check_size(n, len(plain))
    return _greedy(laplace.likelihood, drawn / laplace.temperature, plain, n, by, laplace.noise)


def _lazily(
    laplace: "Laplace",
    pool_loader: Iterable[Any],
    n: int,
    *,
    by: str,
    samples: int,
    seed: int,
    keep: BatchStore | None,
    progress: bool,
) -> Acquisition:
    """Choose greedily among the inputs with the best scores, as many as are needed to be sure of the choice."""
    with isolated(seed, loader=pool_loader):
        prediction, _ = laplace.predict_loader(
            pool_loader, kind="linear", samples=samples, seed=seed, keep=keep, progress=progress
        )
    scores = _score(prediction, by)
    order, count = scores.argsort(descending=True, stable=True), _shortlist(n)
    while True:
        places = order[:count].cpu()
        rows = _rows_of(pool_loader, places)
        if rows is None:
            places = torch.arange(len(scores))
        loader = pool_loader if rows is None else rows
        drawn, plain = _pool_outputs(laplace, loader, samples, "linear-mc", seed, progress=progress)
        found = _greedy(laplace.likelihood, drawn / laplace.temperature, plain, n, by, laplace.noise)
        left_out = float(scores[order[count]]) if len(places) < len(scores) else -torch.inf
        if left_out <= float(found.scores.min()):
            chosen = places.sort().values[found.positions]
            return Acquisition(chosen, found.scores, found.alone, select_examples(prediction, chosen))
        count = min(2 * count, len(scores))


def _shortlist(n: int) -> int:
    return max(SHORT, TIMES * n)


def _pool_size(loader: Iterable[Any]) -> int | None:
    """Return the number of inputs of a pool; None where it is not known without reading it."""
    dataset = getattr(loader, "dataset", None)
    if isinstance(dataset, Sized):
        return len(dataset)
    if isinstance(loader, list | tuple):
        return sum(batch_size(read_batch(raw, torch.device("cpu"))) for raw in loader)
    return None


def _rows_of(loader: Iterable[Any], places: Tensor) -> list[Any] | None:  # (n,)
    """Return a loader of these inputs of a pool, in its order; None where its batches cannot be cut."""
    wanted, start = places.sort().values, 0
    parts: list[Batch] = []
    for raw in loader:
        batch = read_batch(raw, torch.device("cpu"))
        size = batch_size(batch)
        rows = wanted[(wanted >= start) & (wanted < start + size)] - start
        if len(rows):
            part = select_rows(batch, rows)
            if part is None:
                return None
            parts.append(part)
        start += size
    if all(len(one.args) == 1 and isinstance(one.args[0], Tensor) and not one.kwargs for one in parts):
        inputs = [one.args[0] for one in parts]
        if len({one.shape[1:] for one in inputs}) == 1:
            return [torch.cat(inputs)]  # one batch, since single rows take nearly as long as many
    return [((one.kwargs or one.args[0]) if one.kwargs or len(one.args) == 1 else (*one.args, None)) for one in parts]


def condition(likelihood: Likelihood, outputs: Tensor, prediction: Prediction, index: int) -> Tensor:
    """Return sampled outputs narrowed as much as the label of one input would narrow them.

    Args:
        likelihood: the likelihood that made the prediction.
        outputs: outputs of the sampled networks, (M, N, C).
        prediction: prediction of these outputs.
        index: place of the input among the N.

    Returns:
        Outputs with the same mean and a smaller covariance, (M, N, C).
    """
    count = len(outputs)
    assert prediction.samples is not None
    noise = likelihood.target_covariance(prediction, index)  # E[R] (C, C)
    observed = prediction.samples[:, index].double()  # μ (M, C)
    observed = observed - observed.mean(0)
    total = observed.T @ observed + (count - 1) * noise
    values, vectors = torch.linalg.eigh(total)
    kept = values > values[-1].clamp_min(0) * len(values) * torch.finfo(values.dtype).eps
    if not bool(kept.any()):
        return outputs  # the answer is certain: it tells nothing
    root = observed @ (vectors[:, kept] / values[kept].sqrt())  # B (M, r): T = I − B Bᵀ
    shares, axes = torch.linalg.eigh(root.T @ root)
    # T^(1/2) = I − B Q diag((1 − (1 − b)^(1/2)) / b) Qᵀ Bᵀ, without the cancellation at b → 0
    weights = 1 / (1 + (1 - shares.clamp(0, 1)).sqrt())
    axes = root @ axes  # (M, r)
    mean = outputs.mean(0)
    deviations = outputs - mean
    taken = torch.einsum("mr,mnc->rnc", (axes * weights).to(outputs), deviations)
    return mean + deviations.sub_(torch.einsum("mr,rnc->mnc", axes.to(outputs), taken))


def _greedy(
    likelihood: Likelihood, outputs: Tensor, plain: Tensor, n: int, by: str, noise: float | None
) -> Acquisition:  # (M, N, C), (N, C)
    chosen: list[int] = []
    reached: list[float] = []
    first = alone = None
    while True:
        prediction = likelihood.from_samples(outputs, plain, noise=noise)
        scores = _score(prediction, by)
        if first is None or alone is None:
            first, alone = prediction, scores.clone()
        scores[chosen] = -torch.inf
        chosen.append(int(scores.argmax()))
        reached.append(float(scores[chosen[-1]]))
        if len(chosen) == n:
            places = torch.tensor(chosen)
            return Acquisition(places, alone.new_tensor(reached), alone[places], select_examples(first, places))
        outputs = condition(likelihood, outputs, prediction, chosen[-1])


def _pool_outputs(
    laplace: "Laplace",
    pool_loader: Iterable[Any],
    samples: int,
    kind: str,
    seed: int,
    store: BatchStore | None = None,
    *,
    progress: bool,
) -> tuple[Tensor, Tensor]:  # -> (M, N, C), (N, C)
    """Return the outputs of the same sampled networks, and of the trained one, for the whole pool."""
    shared = Predictor(laplace.model, laplace.layers, laplace.likelihood, laplace.posterior())
    with progress_bar(progress) as bar, isolated(seed, loader=pool_loader), shared.private() as predictor:
        networks = predictor.sampled(linear=kind == "linear-mc")
        tick = bar("pool", known_length(pool_loader))
        compute = partial(networks.over, samples=samples, seed=seed, often=store is not None, tick=tick)
        codec = BatchCodec(compute, vars, lambda tensors: SampledOutputs(**tensors))
        device = device_of(laplace.model)
        results = over_batches(pool_loader, codec, device=device, copy_inputs=True, store=store, tick=tick)
        every = [outputs for _, outputs in results]
    if not every:
        raise ValueError("the pool must have at least one input, and its loader gave none.")
    return torch.cat([one.outputs for one in every], dim=1), torch.cat([one.plain for one in every])


def _score(prediction: Prediction, by: str) -> Tensor:  # -> (N,)
    score = prediction.epistemic.sum(1) if by == "variance" else prediction.mutual_information.clone()
    if not bool(score.isfinite().all()):
        raise ValueError(
            "the scores of the pool must be finite, got NaN or infinity; clean its inputs, "
            "or narrow the posterior with tune() or a larger prior_precision."
        )
    return score


def _check_size(n: int, size: int) -> None:
    if n > size:
        raise ValueError(f"n must be at most the {size} inputs of the pool, got {n}.")
