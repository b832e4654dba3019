"""With one seed the sampled networks are the same, whatever the batches at the fit and at the prediction."""

import pytest
import torch
from torch import Tensor, nn

from infoform import Laplace
from infoform.posteriors import PRESETS, STRUCTURES

# fewer examples than inputs: eigenvectors without information are any, and others with every other rounding
X = torch.randn(9, 2, 6, 6, generator=torch.Generator().manual_seed(1))
Y = torch.arange(9) % 3


def _batches(size: int) -> list[tuple[Tensor, Tensor]]:
    return [(X[start : start + size], Y[start : start + size]) for start in range(0, len(X), size)]


def _predicted(structure: str, prior: str, *, fit_size: int, predict_size: int) -> Tensor:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, 3))
    laplace = Laplace(model, "classification", structure=structure, prior=prior, seed=2).fit(
        _batches(fit_size), progress=False
    )
    return laplace.predict_loader(_batches(predict_size), kind="mc", samples=5, progress=False)[0].value


@pytest.mark.filterwarnings("ignore:networks with sampled weights are much worse")
# the Kronecker structures see an activation prior along their eigenvectors alone: under it the posterior itself, not
# only a draw, depends on which vectors of an eigenspace rounding gives
@pytest.mark.parametrize(
    ("structure", "prior"),
    [*((name, "isotropic") for name in (*STRUCTURES, *PRESETS)), *((n, "activation") for n in ("inf", "diag", "full"))],
)
def test_a_draw_does_not_depend_on_the_size_of_batches(structure: str, prior: str) -> None:
    expected = _predicted(structure, prior, fit_size=9, predict_size=9)
    for fit_size, predict_size in ((2, 9), (9, 2), (1, 4)):
        found = _predicted(structure, prior, fit_size=fit_size, predict_size=predict_size)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
