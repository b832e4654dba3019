"""Outputs at positions, tokens and pixels: fits and predictions against autograd, example by example."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForTokenClassification, GPT2Config, GPT2LMHeadModel

import infoform
from dense import assert_close
from flat import flat_laplace
from infoform import Classification, Likelihood, MultiLabel, Regression, metrics
from infoform.common.randomness import hashed_uniforms
from infoform.integrations.huggingface import likelihood_of
from infoform.likelihoods import LIKELIHOODS
from infoform.likelihoods.positions import as_rows
from infoform.network.batches import read_batch, read_inputs, read_outputs
from likelihood_cases import width_of

CPU = torch.device("cpu")
LENGTHS = torch.tensor([4, 2, 3, 4, 1, 4])
pytestmark = [
    pytest.mark.filterwarnings("ignore:on the data of the fit"),  # networks are not trained
    pytest.mark.filterwarnings("ignore:the best prior_precision"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),
    pytest.mark.filterwarnings("ignore:networks with sampled weights are much worse"),
]


def tokens() -> nn.Module:
    torch.manual_seed(0)
    config = BertConfig(  # type: ignore[call-arg]
        vocab_size=12,
        hidden_size=4,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=5,
        max_position_embeddings=8,
        num_labels=3,
        initializer_range=0.5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model: nn.Module = BertForTokenClassification(config)  # type: ignore[no-untyped-call]
    return model.double().eval()


def language() -> nn.Module:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=5, n_embd=4, n_layer=1, n_head=2, n_positions=8, tie_word_embeddings=False,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)  # fmt: skip
    model: nn.Module = GPT2LMHeadModel(config)  # type: ignore[no-untyped-call]
    return model.double().eval()


class UNet(nn.Module):
    """An image halved, doubled again and joined with what it was; the head sees 3 × 3 pixels, or one of them."""

    def __init__(self, outputs: int = 3, head: int = 1) -> None:
        super().__init__()
        self.enter = nn.Conv2d(2, 3, 3, padding=1)
        self.down = nn.Conv2d(3, 4, 2, stride=2)
        self.up = nn.Conv2d(4, 3, 1)
        self.head = nn.Conv2d(6, outputs, head, padding=head // 2)

    def forward(self, x: Tensor) -> Tensor:
        wide = self.enter(x).tanh()
        deep = functional.interpolate(self.up(self.down(wide).tanh()), scale_factor=2)
        found: Tensor = self.head(torch.cat([wide, deep], 1))
        return found


def segments() -> nn.Module:
    torch.manual_seed(0)
    return UNet().double()


def token_batch() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    mask = (torch.arange(4) < LENGTHS[:, None]).long()
    ids = torch.randint(1, 12, (6, 4), generator=generator) * mask
    labels = torch.randint(3, (6, 4), generator=generator).masked_fill(mask == 0, -100)
    labels[0, 1] = -100  # a word piece, say
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def language_batch() -> dict[str, Tensor]:
    ids = torch.randint(1, 5, (6, 4), generator=torch.Generator().manual_seed(4))
    mask = (torch.arange(4) < LENGTHS[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def image_batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(6, 2, 4, 4, dtype=torch.float64, generator=generator)
    labels = torch.randint(3, (6, 4, 4), generator=generator)
    labels[:, 0, 1:3] = -100  # void
    return x, labels


@dataclass(frozen=True)
class Case:
    model: Callable[[], nn.Module]
    batch: Callable[[], Any]
    likelihood: Likelihood
    layers: tuple[str, ...]


CASES = {
    "tokens": Case(tokens, token_batch, Classification(), (
        "bert.encoder.layer.0.attention.self.query", "bert.encoder.layer.0.output.dense", "classifier")),
    "language": Case(language, language_batch, Classification(next_token=True), (
        "transformer.h.0.mlp.c_fc", "lm_head")),
    "segments": Case(segments, image_batch, Classification(), ("enter", "down", "up", "head")),
}  # fmt: skip
every_case = pytest.mark.parametrize("case", CASES)


def counted(case: str) -> Tensor:  # (N, P) whether a position has a target
    batch = CASES[case].batch()
    labels = batch["labels"] if isinstance(batch, dict) else batch[1]
    if case == "language":
        labels = torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], -100)], 1)
    there: Tensor = (labels != -100).flatten(1)
    return there


def inputs(case: str) -> Any:
    batch = CASES[case].batch()
    return {name: one for name, one in batch.items() if name != "labels"} if isinstance(batch, dict) else batch[0]


@cache
def laplace_of(case: str, **options: Any) -> infoform.Laplace:
    one = CASES[case]
    options = {"structure": "full", "layers": one.layers, "statistics": "all"} | options
    return flat_laplace(one.model(), one.likelihood, **options).fit([one.batch()], progress=False)


@cache
def jacobians(case: str) -> tuple[Tensor, dict[str, Tensor]]:  # rows (N, P, C), (N, P, C, G * A) by layer
    """Return outputs and their derivatives in the weights, of every example alone, by `jacrev`."""
    model, laplace = CASES[case].model(), laplace_of(case)
    parameters = {name: one.detach() for name, one in model.named_parameters()}
    given, found, rows = inputs(case), [], []

    def outputs(values: dict[str, Tensor], n: int) -> Tensor:
        one = read_inputs(
            {k: v[n : n + 1] for k, v in given.items()} if isinstance(given, dict) else given[n : n + 1], CPU
        )
        logits = read_outputs(functional_call(model, values, one.args, one.kwargs))
        last = logits.movedim(1, -1) if logits.dim() == 4 else logits
        return last.flatten(1, -2)[0]  # (P, C)

    with sdpa_kernel(SDPBackend.MATH):
        for n in range(6):
            whole = jacrev(outputs)(parameters, n)
            rows.append(outputs(parameters, n).detach())
            by_layer = {}
            for name, layer in laplace.layers.items():
                parts = {key: whole[own] for key, own in layer.parameters.items()}
                weight = parts["weight"]
                if type(layer.module).__name__ == "Conv1D":  # whose weight is (A, G)
                    weight = weight.mT
                columns = [weight.reshape(*weight.shape[:3], -1)]
                columns += [parts["bias"].unsqueeze(-1)] if "bias" in parts else []
                by_layer[name] = torch.cat(columns, 3).flatten(2)
            found.append(by_layer)
    return torch.stack(rows), {name: torch.stack([one[name] for one in found]) for name in laplace.layers}


def dense_information(case: str, name: str) -> Tensor:  # Σ_n Σ_s J_sᵀ F_s J_s / N
    rows, found = jacobians(case)
    jacobian, probs, there = found[name], rows.softmax(-1), counted(case)
    fisher = probs.diag_embed() - probs.unsqueeze(-1) * probs.unsqueeze(-2)
    total = torch.einsum("npca,npcd,npdb,np->ab", jacobian, fisher, jacobian, there.double())
    return total / len(rows)


def information(laplace: infoform.Laplace, name: str) -> Tensor:
    posterior = laplace.posterior(prior="isotropic", prior_precision=1.0, num_data=1.0).layers[name]
    dense = posterior.dense()
    return dense - torch.eye(len(dense), dtype=dense.dtype)


@every_case
def test_the_exact_fisher_is_the_sum_over_positions(case: str) -> None:
    laplace = laplace_of(case, fisher="exact")
    for name in CASES[case].layers:
        assert_close(information(laplace, name), dense_information(case, name), rtol=1e-8)
    summary = laplace._fitted().fit.summary
    assert summary.num_targets == int(counted(case).sum())
    assert (summary.num_examples, laplace.num_data) == (6, 6.0)


@every_case
@pytest.mark.parametrize("samples", [1, 2])
def test_a_sampled_vector_has_a_label_for_every_position(case: str, samples: int) -> None:
    laplace = laplace_of(case, fisher_samples=samples)
    rows, found = jacobians(case)
    there = counted(case)
    axes = [torch.arange(size) for size in (6, samples, rows.shape[1], 1)]
    uniforms = hashed_uniforms(0, *(one.view(-1, *[1] * (3 - i)) for i, one in enumerate(axes)))  # (N, V, P, 1)
    total = {name: torch.zeros(()).double() for name in found}
    for v in range(samples):
        labels = Classification().sample_targets(as_rows(rows), uniforms[:, v].flatten(0, 1)).view(rows.shape[:2])
        scores = functional.one_hot(labels, rows.shape[2]) - rows.softmax(-1)
        scores = scores * there.unsqueeze(-1) / math.sqrt(samples)
        for name, jacobian in found.items():
            gradients = torch.einsum("npc,npca->na", scores, jacobian)
            total[name] = total[name] + gradients.T @ gradients / 6
    for name in found:
        assert_close(information(laplace, name), total[name], rtol=1e-8)


def test_labels_drawn_at_all_positions_are_unbiased() -> None:
    draws, case = 600, "segments"
    laplace, (_, found) = laplace_of(case, fisher_samples=draws, layers=("head",)), jacobians(case)
    rows, there = jacobians(case)[0], counted(case)
    expected = dense_information(case, "head")
    assert (information(laplace, "head") - expected).abs().max() < 0.2 * expected.abs().max()
    # with the labels of other positions shared it would not be
    scores = (functional.one_hot(torch.zeros(6, 16, dtype=torch.long), 3) - rows.softmax(-1)) * there.unsqueeze(-1)
    together = torch.einsum("npc,npca->na", scores, found["head"])
    assert (together.T @ together / 6 - expected).abs().max() > expected.abs().max()


@every_case
def test_the_empirical_fisher_has_the_gradient_of_an_example(case: str) -> None:
    one = CASES[case]
    laplace = laplace_of(case, fisher="empirical")
    rows, found = jacobians(case)
    batch = one.batch()
    labels = batch["labels"] if isinstance(batch, dict) else batch[1]
    if case == "language":
        labels = torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], -100)], 1)
    labels, there = labels.flatten(1), counted(case)
    scores = (functional.one_hot(labels.clamp_min(0), rows.shape[2]) - rows.softmax(-1)) * there.unsqueeze(-1)
    for name, jacobian in found.items():
        gradients = torch.einsum("npc,npca->na", scores, jacobian)
        assert_close(information(laplace, name), gradients.T @ gradients / 6, rtol=1e-8)
    log_likelihood = rows.log_softmax(-1).gather(2, labels.clamp_min(0).unsqueeze(2)).squeeze(2)[there].sum()
    assert laplace._fitted().fit.summary.log_likelihood == pytest.approx(float(log_likelihood))


@every_case
@pytest.mark.parametrize("structure", ["diag", "kfac", "inf", "full"])
def test_linear_covariances_are_those_of_every_position(case: str, structure: str) -> None:
    laplace = laplace_of(case)
    posterior = laplace.posterior(structure=structure, prior="isotropic", prior_precision=2.0)
    with laplace._predictor(posterior).private() as predictor:
        mean, covariance = predictor.linear(read_inputs(inputs(case), CPU))
    rows, found = jacobians(case)
    assert_close(as_rows(mean), rows.flatten(0, 1))
    expected = torch.zeros(()).double()
    for name, jacobian in found.items():
        flat = jacobian.flatten(0, 1)  # (R, C, G * A)
        expected = expected + flat @ torch.linalg.solve(posterior.layers[name].dense(), flat.mT)
    assert_close(covariance, expected, rtol=1e-8)


@every_case
def test_the_last_layer_has_a_closed_form_at_every_position(case: str) -> None:
    one = CASES[case]
    laplace = flat_laplace(one.model(), one.likelihood, structure="full", layers="last")
    laplace.fit([one.batch()], progress=False)
    assert tuple(laplace.layers) == (one.layers[-1],)
    prediction = laplace.predict(inputs(case))
    assert prediction.reason == "one forward pass: the last layer alone has a posterior"
    with laplace._predictor().private() as predictor:
        raw = predictor._last_layer_outputs(read_inputs(inputs(case), CPU))
        _, expected = predictor.linear(read_inputs(inputs(case), CPU))
    assert raw is not None
    assert raw.covariance is not None
    assert_close(raw.covariance, expected, rtol=1e-8)


def test_a_head_of_several_pixels_has_a_closed_form_too() -> None:
    torch.manual_seed(0)
    model = UNet(head=3).double()
    laplace = flat_laplace(model, "classification", structure="kfac", layers="last").fit(
        [image_batch()], progress=False
    )
    x = image_batch()[0]
    with laplace._predictor().private() as predictor:
        raw = predictor._last_layer_outputs(read_inputs(x, CPU))
        _, expected = predictor.linear(read_inputs(x, CPU))
    assert raw is not None
    assert_close(raw.covariance, expected, rtol=1e-8)


@every_case
@pytest.mark.parametrize("kind", ["linear", "mc", "linear-mc"])
def test_sampled_networks_answer_at_every_position(case: str, kind: str) -> None:
    laplace, one = laplace_of(case), CASES[case]
    laplace.prior_precision = 50.0
    prediction = laplace.predict(inputs(case), kind=kind, samples=400, seed=1)
    whole = one.likelihood.arrange_outputs(read_outputs(_run(one.model(), inputs(case)))).detach()
    assert prediction.probs is not None
    assert prediction.probs.shape == whole.shape
    assert prediction.entropy.shape == prediction.labels.shape == whole.shape[:-1]
    assert_close(prediction.plain, whole)
    if kind != "mc":  # of a network that is not linear the mean is another
        with laplace._predictor().private() as predictor:
            _, covariance = predictor.linear(read_inputs(inputs(case), CPU))
        drawn = predictor.sampled(linear=True).over([read_inputs(inputs(case), CPU)], samples=400, seed=1)
        spread = next(iter(drawn)).outputs.var(0).flatten()
        expected = covariance.diagonal(dim1=1, dim2=2).flatten()
        assert (spread / expected).log().abs().mean() < 0.2
    alone = laplace.predict(_first(inputs(case)), kind=kind, samples=400, seed=1)
    torch.testing.assert_close(alone.probs, prediction.probs[:1], rtol=1e-6, atol=1e-9)


def _run(model: nn.Module, given: Any) -> Any:
    batch = read_inputs(given, CPU)
    return model(*batch.args, **batch.kwargs)


def _first(given: Any) -> Any:
    return {name: one[:1] for name, one in given.items()} if isinstance(given, dict) else given[:1]


@every_case
def test_it_is_tuned_scored_calibrated_saved_and_novel(case: str, tmp_path: Path) -> None:
    one = CASES[case]
    laplace = flat_laplace(one.model(), one.likelihood, layers=one.layers).fit([one.batch()] * 4, progress=False)
    laplace.tune([one.batch()] * 3, trials=5, samples=20, progress=False)
    prediction, targets = laplace.predict_loader([one.batch()] * 2, samples=20, progress=False)
    assert targets is not None
    there = counted(case).repeat(2, 1).flatten()
    rows = prediction.value.flatten(0, -2)[there]
    labels = targets.flatten()[there]
    assert metrics.evaluate(prediction, targets)["nll"] == pytest.approx(metrics.nll(rows, labels))
    assert metrics.nll(prediction.value, targets) == pytest.approx(metrics.nll(rows, labels))
    assert laplace.conformal is not None
    assert laplace.conformal.count == int(counted(case).any(1).sum()) * 3  # examples, not positions
    sets = laplace.predict(inputs(case), samples=20).set(0.6)
    assert sets.shape == prediction.value[:6].shape
    assert bool(sets.any(-1).all())
    assert laplace.novelty(inputs(case)).novelty.shape == (6,)
    with pytest.raises(ValueError, match=r"calibration examples of novelty 0\.95 to 1, got 0"):
        laplace.predict(inputs(case), samples=20).set(0.5, by="novelty")
    table = prediction.columns()
    kept = prediction.entropy.numel() if prediction.mask is None else int(prediction.mask.sum())
    assert {len(values) for values in table.values()} == {kept}
    laplace.save(tmp_path / "a.infoform")
    loaded = infoform.load(tmp_path / "a.infoform", one.model())
    assert_close(loaded.predict(inputs(case), samples=20).value, laplace.predict(inputs(case), samples=20).value)
    assert loaded.predict(inputs(case)).kind == laplace.predict(inputs(case)).kind


def test_the_score_of_a_search_is_that_of_the_positions_that_count() -> None:
    laplace = flat_laplace(segments(), "classification").fit([image_batch()], progress=False)
    laplace.tune([image_batch()], trials=3, samples=20, progress=False, kind="linear-mc", standard_errors=0)
    prediction, targets = laplace.predict_loader([image_batch()], kind="linear-mc", samples=20, progress=False)
    assert targets is not None
    best = min(trial.scores["nll"] for trial in laplace.trials)
    assert metrics.evaluate(prediction, targets)["nll"] == pytest.approx(best, rel=1e-9)


def test_padding_of_a_batch_changes_nothing() -> None:
    one, batch = CASES["tokens"], token_batch()
    del batch["labels"]  # the mask alone tells then
    longer = {name: functional.pad(value, (0, 2)) for name, value in batch.items()}
    parts = [{name: value[n : n + 1, : LENGTHS[n]] for name, value in batch.items()} for n in range(6)]
    fits = [flat_laplace(one.model(), one.likelihood, structure="full", layers=one.layers) for _ in range(3)]
    for laplace, data in zip(fits, ([batch], [longer], parts), strict=True):
        laplace.fit(data, progress=False)
    for name in one.layers:
        for other in fits[1:]:
            assert_close(information(other, name), information(fits[0], name), rtol=1e-7)
    whole, _ = fits[0].predict_loader(parts, kind="linear", samples=10, progress=False)
    assert whole.positions == (4,)
    assert whole.mask is not None
    assert torch.equal(whole.mask, batch["attention_mask"] != 0)
    there = whole.mask
    torch.testing.assert_close(
        whole.entropy[there], fits[0].predict(batch, kind="linear", samples=10).entropy[there], rtol=1e-6, atol=1e-9
    )
    assert len(whole.columns()["label"]) == int(LENGTHS.sum())


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_every_likelihood_takes_images_to_images(name: str) -> None:
    torch.manual_seed(0)
    likelihood = LIKELIHOODS[name]()
    model, x = UNet(width_of(name)).double(), image_batch()[0]
    arranged = likelihood.arrange_outputs(model(x)).detach()
    rows = arranged.flatten(0, -2)
    uniforms = torch.rand(len(rows), likelihood.noise_width(rows.shape[1]), dtype=torch.float64)
    drawn = likelihood.sample_targets(rows, uniforms).unflatten(0, arranged.shape[:-1])
    targets = drawn if drawn.dim() == 3 else drawn.movedim(-1, 1)
    laplace = infoform.Laplace(model, likelihood).fit([(x, targets)], progress=False)
    laplace.tune([(x, targets)], trials=3, samples=10, progress=False)
    for kind in ("linear-mc", "mc"):
        prediction, given = laplace.predict_loader([(x, targets)] * 2, kind=kind, samples=8, progress=False)
        assert given is not None
        assert prediction.positions == (4, 4)
        assert math.isfinite(likelihood.scores(prediction, given)["nll"])
    if prediction.answer == "numbers":
        low, high = laplace.predict(x, samples=10).interval(0.6)
        assert low.shape == high.shape == prediction.value[:6].shape
    axis = type(likelihood)(**likelihood.settings(), axis=1)  # type: ignore[call-arg]
    assert torch.equal(axis.arrange_outputs(model(x)), arranged)


def test_missing_numbers_do_not_count() -> None:
    torch.manual_seed(0)
    model, x = UNet(1).double(), image_batch()[0]
    y = model(x).detach() + torch.randn(6, 1, 4, 4, dtype=torch.float64)
    holes = y.clone()
    holes[:, :, 1] = math.nan
    laplace = infoform.Laplace(model, Regression()).fit([(x, holes)], progress=False)
    kept = (y - model(x).detach())[:, :, [0, 2, 3]]
    assert laplace.noise == pytest.approx(float(kept.square().mean().sqrt()))
    prediction, targets = laplace.predict_loader([(x, holes)], progress=False, samples=10)
    assert targets is not None
    assert metrics.evaluate(prediction, targets)["rmse"] < 2


def test_the_axis_of_the_classes_can_be_said() -> None:
    torch.manual_seed(0)
    signal = nn.Sequential(nn.Conv1d(2, 3, 3, padding=1), nn.Tanh(), nn.Conv1d(3, 2, 1)).double()
    x, y = torch.randn(6, 2, 5, dtype=torch.float64), torch.randint(2, (6, 5))
    with pytest.raises(ValueError, match=r"need targets of shape \(6, 2\).*Classification\(axis=1\)"):
        infoform.Laplace(signal, "classification").fit([(x, y)], progress=False)
    laplace = infoform.Laplace(signal, Classification(axis=1)).fit([(x, y)], progress=False)
    assert laplace.predict(x).value.shape == (6, 5, 2)
    for axis in (0, 3, -4):
        with pytest.raises(ValueError, match="axis says where the numbers of a position are"):
            Classification(axis=axis).arrange_outputs(torch.zeros(6, 2, 5))
    with pytest.raises(ValueError, match="next_token=True is for logits of shape"):
        Classification(next_token=True).arrange_targets(torch.zeros(6), torch.zeros(6, 2))


def test_wrong_labels_of_positions_are_refused() -> None:
    x, y = image_batch()
    for wrong, message in ((y + 5, "class indices must be between 0 and 2"), (y[:, 0], "need targets of shape"),
                           (y[:3], "one target for each of its 6 examples")):  # fmt: skip
        wrong = wrong.masked_fill(wrong < -50, -100)
        with pytest.raises(ValueError, match=message):
            infoform.Laplace(segments(), "classification").fit([(x, wrong)], progress=False)
    with pytest.raises(ValueError, match="acquire chooses among inputs with one answer each"):
        infoform.acquire(laplace_of("segments"), [x], 2, progress=False)
    with pytest.raises(ValueError, match="compare is of one answer an example"):
        infoform.compare(laplace_of("segments"), [(x, y)])


def test_labels_of_tokens_are_of_each_by_itself() -> None:
    """A multi-label network on tokens is as many examples as there are tokens, where tokens are alone."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x = torch.randn(6, 5, 3, dtype=torch.float64)
    y = torch.randint(2, (6, 5, 2)).double()
    together = flat_laplace(model, MultiLabel(), structure="full", fisher="exact").fit([(x, y)], progress=False)
    single = flat_laplace(model, MultiLabel(), structure="full", fisher="exact")
    single.fit([(x.flatten(0, 1), y.flatten(0, 1))], progress=False)
    for name in ("0", "2"):
        assert_close(information(together, name), 5 * information(single, name))
    assert_close(together.predict(x).value.flatten(0, 1), single.predict(x.flatten(0, 1)).value)
    assert together.log_evidence() == pytest.approx(single.log_evidence())


def test_batches_do_not_matter() -> None:
    data = TensorDataset(*image_batch())
    one, other = (
        flat_laplace(segments(), "classification", structure="inf", rank=5).fit(DataLoader(data, size), progress=False)
        for size in (2, 6)
    )
    for name in ("enter", "head"):
        diagonal = one.curvature[name].diagonal
        assert diagonal is not None
        again = other.curvature[name].diagonal
        assert again is not None
        assert_close(diagonal, again)
    assert read_batch(image_batch(), CPU).targets is not None


def test_no_graph_is_written_for_positions(tmp_path: Path) -> None:
    x, _ = image_batch()
    with pytest.raises(ValueError, match="an export is of one answer an example, and this network answers at 4×4"):
        laplace_of("segments").export(tmp_path / "a.onnx", kind="samples", example=x)


def test_a_plan_counts_the_passes_of_every_position() -> None:
    x, _ = image_batch()
    by_labels, exact = (
        infoform.plan(segments(), example=x, fit_options=infoform.FitOptions(fisher=fisher)).cost
        for fisher in ("mc", "exact")
    )
    assert by_labels is not None
    assert exact is not None
    assert exact > 10 * by_labels  # 48 backward passes in place of one


def test_a_search_keeps_some_positions_of_every_example(monkeypatch: pytest.MonkeyPatch) -> None:
    import infoform.predicting.over_loader as over_loader

    laplace, (x, y) = flat_laplace(segments(), "classification").fit([image_batch()], progress=False), image_batch()
    monkeypatch.setattr(over_loader, "SCORED_NUMBERS", 6 * 5 * 3 * 10)  # five positions, three classes, ten networks
    laplace.tune([(x[:4], y[:4]), (x[4:], y[4:])], trials=3, samples=10, kind="mc", progress=False)
    assert laplace.conformal is not None
    examples = laplace.conformal.examples
    assert examples is not None
    assert examples.bincount().tolist() == [5] * 6


def test_labels_that_are_the_tokens_themselves_are_warned_of() -> None:
    model, batch = language(), language_batch()
    with pytest.warns(infoform.UntrainedWarning, match=r"Classification\(next_token=True\)"):
        infoform.Laplace(model, "classification", layers="last").fit([batch], progress=False)
    assert not laplace_of("language").training_troubles()
    found = likelihood_of(model)
    assert isinstance(found, Classification)
    assert found.next_token
    assert likelihood_of(tokens()) == "classification"
