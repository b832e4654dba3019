import pytest
import torch
from torch.testing import assert_close

import infoform
from export_cases import batches, fitted
from exported_graphs import outputs_of
from infoform.posteriors import STRUCTURES


@pytest.mark.parametrize("structure", sorted(STRUCTURES))
def test_a_graph_answers_as_predict_does_for_every_structure(structure: str) -> None:
    laplace, (x, _) = fitted("classification", structure=structure), batches("classification")[0]
    prediction, found = laplace.predict(x), outputs_of(laplace, x, "last-layer")
    for name in ("probs", "entropy", "mutual_information", "novelty"):
        assert_close(found[name], getattr(prediction, name), rtol=1e-7, atol=1e-9)
    assert_close(found["logits"], laplace.model(x).detach())
    assert_close(found["features"], laplace.model[:2](x).detach())  # type: ignore[index]


@pytest.mark.parametrize("likelihood", ["regression", "multilabel"])
def test_a_graph_answers_as_predict_does_for_every_likelihood(likelihood: str) -> None:
    laplace, (x, _) = fitted(likelihood), batches(likelihood)[0]
    prediction, found = laplace.predict(x), outputs_of(laplace, x, "last-layer")
    names = ("mean", "std") if likelihood == "regression" else ("probs", "mutual_information")
    for name in (*names, "entropy", "novelty"):
        assert_close(found[name], getattr(prediction, name), rtol=1e-7, atol=1e-9)
    assert ("logits" in found) == (likelihood == "multilabel")


def test_the_variance_is_that_of_dense_algebra() -> None:
    laplace, (x, _) = fitted("classification"), batches("classification")[0]
    (layer,) = laplace.posterior().layers.values()
    features = torch.cat([laplace.model[:2](x), torch.ones(len(x), 1, dtype=x.dtype)], 1)  # type: ignore[index]
    covariance = torch.linalg.inv(layer.dense()).reshape(3, 9, 3, 9)
    blocks = torch.stack([covariance[g, :, g] for g in range(3)])  # (G, A, A)
    expected = torch.einsum("na,gab,nb->ng", features, blocks, features).detach()
    assert_close(outputs_of(laplace, x, "last-layer")["variance"], expected, rtol=1e-9, atol=1e-12)


def test_probit_has_no_draws_and_answers_as_predict_does() -> None:
    laplace, (x, _) = fitted("classification"), batches("classification")[0]
    found = outputs_of(laplace, x, "last-layer", link="probit")
    assert_close(found["probs"], laplace.predict(x, link="probit").probs)
    assert "mutual_information" not in found


def test_many_outputs_are_answered_by_probit() -> None:
    x, y = torch.randn(200, 6), torch.arange(200) % 70
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 70))
    laplace = infoform.Laplace(model, "classification", layers="last").fit([(x, y)], progress=False)
    found = outputs_of(laplace, x, "last-layer")
    assert_close(found["probs"], laplace.predict(x, link="probit").probs, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match=r"link='mc' .* more than 64 outputs, got 70; use link='probit'"):
        outputs_of(laplace, x, "last-layer", link="mc")


def test_half_and_int8_weights_change_little() -> None:
    laplace, (x, _) = fitted("classification"), batches("classification")[0]
    exact = outputs_of(laplace, x, "last-layer")
    for precision in ("float16", "int8"):
        found = outputs_of(laplace, x, "last-layer", precision=precision)
        assert_close(found["probs"], exact["probs"], rtol=0, atol=0.02)
