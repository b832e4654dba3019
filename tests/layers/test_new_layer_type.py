"""A layer type of one's own, here an embedding: one class and one line in the table, and nothing else."""

from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.testing import assert_close

import infoform
from infoform.layers import LAYERS, LayerRule

WORDS, WIDTH, LENGTH = 7, 4, 3
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),  # by torch's own jvp, once
    pytest.mark.filterwarnings("ignore:networks with sampled weights"),  # nothing is trained here
]


class EmbeddingRule(LayerRule):
    """`nn.Embedding`: a linear map of one-hot rows, shared over the places of a text; the matrix is weightᵀ."""

    types: ClassVar[tuple[type[nn.Module], ...]] = (nn.Embedding,)

    def inputs(self, module: nn.Module, x: Tensor) -> Tensor:
        assert isinstance(module, nn.Embedding)
        rows = functional.one_hot(x.long(), module.num_embeddings).to(module.weight)
        return rows.reshape(1, len(x), -1, module.num_embeddings)

    def gradients(self, module: nn.Module, g: Tensor) -> Tensor:
        return g.reshape(1, len(g), -1, g.shape[-1])

    def shape(self, module: nn.Module) -> tuple[int, int]:
        assert isinstance(module, nn.Embedding)
        return module.embedding_dim, module.num_embeddings

    def matrix(self, module: nn.Module) -> Tensor:
        assert isinstance(module, nn.Embedding)
        return module.weight.detach().T

    def parameters(self, module: nn.Module, matrix: Tensor) -> dict[str, Tensor]:
        return {"weight": matrix.mT}


@pytest.fixture(autouse=True)
def line_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAYERS, "embedding", EmbeddingRule())


def networks(length: int) -> tuple[nn.Module, nn.Module]:
    """Return a network on words, and the same network on one-hot rows."""
    torch.manual_seed(0)
    embedding, linear = nn.Embedding(WORDS, WIDTH), nn.Linear(WORDS, WIDTH, bias=False)
    with torch.no_grad():
        linear.weight.copy_(embedding.weight.T)
    rest = nn.Sequential(nn.Tanh(), nn.Flatten(), nn.Linear(length * WIDTH, 2))
    return nn.Sequential(embedding, *rest).double(), nn.Sequential(linear, *rest).double()


def texts(count: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(WORDS, (count, length), generator=generator)
    y = torch.randint(2, (count,), generator=generator)
    return x, functional.one_hot(x, WORDS).double(), y


def fitted(length: int, **options: str) -> tuple[infoform.Laplace, infoform.Laplace, Tensor, Tensor]:
    x, one_hot, y = texts(20, length)
    words, rows = networks(length)
    make = infoform.Laplace(words, "classification", **options), infoform.Laplace(rows, "classification", **options)  # type: ignore[arg-type]
    data = [(x[:12], y[:12]), (x[12:], y[12:])], [(one_hot[:12], y[:12]), (one_hot[12:], y[12:])]
    first, second = (one.fit(batches, progress=False) for one, batches in zip(make, data, strict=True))
    return first, second, x, one_hot


@pytest.mark.parametrize("length", [1, LENGTH])
@pytest.mark.parametrize("structure", ["inf", "diag", "kfac", "full"])
def test_an_embedding_has_the_posterior_of_a_linear_map_of_one_hot_rows(structure: str, length: int) -> None:
    found, expected, x, one_hot = fitted(length, structure=structure, prior="isotropic")
    assert "Embedding '0'" in str(found.coverage())
    for kind in ("linear", "mc", "linear-mc"):
        prediction = found.predict(x, kind=kind, samples=9)
        assert prediction.probs is not None
        assert bool(prediction.probs.isfinite().all())
    linear, reference = found.predict(x), expected.predict(one_hot)
    assert_close(linear.epistemic, reference.epistemic)
    assert_close(linear.probs, reference.probs)
    assert_close(found.log_evidence(), expected.log_evidence())


def test_an_embedding_is_planned_saved_and_loaded(tmp_path: Path) -> None:
    found, _, x, _ = fitted(LENGTH)
    assert {"0", "3"} == {layer.name for layer in infoform.plan(networks(LENGTH)[0], example=x).layers}
    assert infoform.plan(found).ranks.keys() == {"0", "3"}
    path = tmp_path / "words.infoform"
    found.save(path)
    loaded = infoform.load(path, networks(LENGTH)[0])
    assert_close(loaded.predict(x).probs, found.predict(x).probs)


def test_errors_name_the_types_of_the_table() -> None:
    with pytest.raises(ValueError, match=r"a rule \(Linear, Conv1d, .*, Embedding\) to give a posterior"):
        infoform.Laplace(nn.LayerNorm(3), "classification")
