"""The paper's lemmas, and what ours gains, on the per-example gradients of small trained networks.

Every statement is about I, the exact block of a layer, and estimates of it: N = 1, no prior.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from sklearn.datasets import load_diabetes, load_digits
from torch import Tensor, nn
from torch.testing import assert_close

from curvatures import POSTERIORS
from flat import flat_laplace
from infoform import Laplace
from infoform.curvature.curvature import Curvature
from infoform.curvature.eigenbasis import expanded_diagonal, select_pairs
from infoform.posteriors import InfPosterior, LayerPosterior
from infoform.priors import LayerPrior


def train(model: nn.Module, x: Tensor, y: Tensor, loss: nn.Module, *, steps: int) -> nn.Module:
    before = loss(model(x), y).item()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    assert loss(model(x), y).item() < 0.6 * before, "not trained"
    return model.eval()


def digits(count: int) -> tuple[Tensor, Tensor]:  # (N, 1, 8, 8), (N,)
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images[:count] / 16).reshape(-1, 1, 8, 8), torch.tensor(labels[:count])


def digits_cnn() -> Laplace:
    x, y = digits(300)
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(48, 24), nn.ReLU(), nn.Linear(24, 10)),
    ).double()
    train(model, x, y, nn.CrossEntropyLoss(), steps=60)
    return flat_laplace(model, "classification", statistics="all", fisher="exact").fit([(x, y)], progress=False)


def digits_mlp() -> Laplace:
    x, y = digits(200)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.Tanh(), nn.Linear(9, 10)).double()
    train(model, x, y, nn.CrossEntropyLoss(), steps=100)
    return flat_laplace(model, "classification", statistics="all", fisher="exact").fit([(x, y)], progress=False)


def diabetes_mlp() -> Laplace:
    inputs, targets = load_diabetes(return_X_y=True)
    x, y = torch.tensor(inputs[:200]) * 20, torch.tensor(targets[:200, None])
    y = (y - y.mean()) / y.std()
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1)).double()
    train(model, x, y, nn.MSELoss(), steps=100)
    return flat_laplace(model, "regression", statistics="all", fisher="exact").fit([(x, y)], progress=False)


NETWORKS: dict[str, Callable[[], Laplace]] = {
    "digits CNN": digits_cnn,
    "digits MLP": digits_mlp,
    "diabetes MLP": diabetes_mlp,
}
LAYERS = [("digits CNN", "0"), ("digits CNN", "3"), ("digits CNN", "7"), ("digits CNN", "9")]
LAYERS += [("digits MLP", "1"), ("digits MLP", "3"), ("diabetes MLP", "0"), ("diabetes MLP", "2")]


@pytest.fixture(scope="module")
def networks() -> dict[str, Laplace]:
    fitted = {}
    for name, make in NETWORKS.items():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            fitted[name] = make()
    return fitted


@pytest.fixture(params=LAYERS, ids=lambda pair: f"{pair[0]}, layer {pair[1]}")
def curvature(request: pytest.FixtureRequest, networks: dict[str, Laplace]) -> Curvature:
    network, layer = request.param
    return networks[network].curvature[layer]


def exact(curvature: Curvature) -> Tensor:  # I (G * A, G * A)
    assert curvature.block is not None
    return curvature.block


def estimate(structure: str, curvature: Curvature, **options: Any) -> Tensor:  # (G * A, G * A)
    """Return a structure's estimate of I."""
    posterior: LayerPosterior = POSTERIORS[structure].from_curvature(
        curvature, prior=LayerPrior(0.0), num_data=1.0, **options
    )
    return posterior.dense()


def papers_inf(curvature: Curvature, *, rank: int, support: str = "grid") -> Tensor:
    options: dict[str, Any] = {"basis": "activation", "core": "diagonal", "correction": "additive", "clip": False}
    return estimate("inf", curvature, rank=rank, support=support, **options)


def low_rank_efb(curvature: Curvature, *, rank: int, support: str) -> tuple[Tensor, int]:
    """Return the kept eigenpairs of the EFB alone, and how many they are."""
    eigen = curvature.bases["activation"]
    rows, columns = select_pairs(eigen.eigenvalues, rank=rank, support=support)
    kept = torch.zeros_like(eigen.eigenvalues)
    kept[rows, columns] = eigen.eigenvalues[rows, columns]
    basis = torch.kron(eigen.gradient_vectors, eigen.input_vectors)
    return basis * kept.flatten() @ basis.T, len(rows)


def share(curvature: Curvature, part: float) -> int:
    return max(1, round(part * curvature.shape[0] * curvature.shape[1]))


def error(truth: Tensor, found: Tensor) -> float:  # relative to |I|
    return float((truth - found).norm() / truth.norm())


ROUNDING = 1e-12  # of an error relative to |I|


def test_the_diagonal_of_inf_is_exact_at_every_rank(curvature: Curvature) -> None:
    """Proposition 1."""
    truth = exact(curvature).diag()
    for part in (0.01, 0.05, 0.5, 1.0):
        for support in ("grid", "top"):
            found = papers_inf(curvature, rank=share(curvature, part), support=support).diag()
            assert_close(found, truth, rtol=1e-9, atol=ROUNDING * float(truth.max()))
        ours = estimate("inf", curvature, rank=share(curvature, part)).diag()
        assert_close(ours, truth, rtol=1e-9, atol=0)


def test_inf_of_full_rank_is_no_worse_than_efb(curvature: Curvature) -> None:
    """Lemma 1."""
    truth, size = exact(curvature), share(curvature, 1.0)
    efb, inf = estimate("efb", curvature, basis="activation"), papers_inf(curvature, rank=size)
    assert error(truth, efb) >= error(truth, inf) - ROUNDING
    off_diagonal = efb - inf
    off_diagonal.diagonal().zero_()
    assert float(off_diagonal.norm()) <= ROUNDING * float(truth.norm()), "they differ on the diagonal alone"


def test_inf_of_full_rank_is_no_worse_than_kfac(curvature: Curvature) -> None:
    """Corollary 1, and the inequality of George et al. behind it."""
    truth = exact(curvature)
    kfac = error(truth, estimate("kfac", curvature, damping="exact"))
    efb = error(truth, estimate("efb", curvature, basis="activation"))
    inf = error(truth, papers_inf(curvature, rank=share(curvature, 1.0)))
    assert kfac >= efb - ROUNDING
    assert kfac >= inf - ROUNDING


def test_the_diagonal_of_low_rank_inf_is_no_worse_than_that_of_efb_and_kfac(curvature: Curvature) -> None:
    """Lemma 2, first part."""
    truth = exact(curvature).diag()
    inf = error(truth, papers_inf(curvature, rank=share(curvature, 0.05)).diag())
    assert inf <= ROUNDING
    assert error(truth, estimate("efb", curvature, basis="activation").diag()) >= inf
    assert error(truth, estimate("kfac", curvature, damping="exact").diag()) >= inf


def test_inf_that_keeps_all_nonzero_eigenvalues_is_no_worse_than_efb(curvature: Curvature) -> None:
    """Lemma 2, second part."""
    truth = exact(curvature)
    eigenvalues = curvature.bases["activation"].eigenvalues
    nonzero = int((eigenvalues > 1e-14 * eigenvalues.max()).sum())
    efb = error(truth, estimate("efb", curvature, basis="activation"))
    for support in ("grid", "top"):
        assert efb >= error(truth, papers_inf(curvature, rank=nonzero, support=support)) - ROUNDING


@pytest.mark.parametrize("part", [0.05, 1.0])
def test_inf_is_a_proper_posterior_where_the_kept_pairs_explain_less_than_the_diagonal(
    curvature: Curvature, part: float
) -> None:
    """Lemma 3: q_T < f for every weight suffices; here Λ is scaled so that it holds."""
    eigen = curvature.bases["activation"]
    assert curvature.diagonal is not None
    q = expanded_diagonal(eigen.input_vectors, eigen.gradient_vectors, eigen.eigenvalues)
    informed = q > 1e-14 * q.max()  # what has no information is held fixed
    shrink = 0.9 * float((curvature.diagonal[informed] / q[informed]).min())
    shrunk = replace(curvature, bases={"activation": replace(eigen, eigenvalues=shrink * eigen.eigenvalues)})
    posterior = InfPosterior.from_curvature(
        shrunk,
        prior=LayerPrior(0.0),
        num_data=1.0,
        rank=share(curvature, part),
        basis="activation",
        support="grid",
        correction="additive",
        core="diagonal",
        clip=False,
    )
    assert (posterior.remainder[informed] > 0).all()
    free = informed.flatten()
    precision = posterior.dense()[free][:, free]
    size = precision.diag().rsqrt()
    assert float(torch.linalg.eigvalsh(size[:, None] * precision * size)[0]) > 0


def test_that_condition_does_not_hold_by_itself(networks: dict[str, Laplace]) -> None:
    """Without it the paper's INF of real layers is indefinite; ours is not."""
    indefinite = 0
    for network, layer in LAYERS:
        one = networks[network].curvature[layer]
        rank = share(one, 0.05)
        smallest, largest = torch.linalg.eigvalsh(papers_inf(one, rank=rank))[[0, -1]]
        indefinite += bool(smallest < -1e-9 * largest)
        smallest, largest = torch.linalg.eigvalsh(estimate("inf", one, rank=rank))[[0, -1]]
        assert smallest >= -ROUNDING * largest
    assert indefinite >= len(LAYERS) / 2


@pytest.mark.parametrize("part", [0.01, 0.05, 0.2])
def test_more_eigenvalues_of_efb_are_no_worse_and_the_largest_are_best(curvature: Curvature, part: float) -> None:
    """Lemma 4, in the direction that its proof gives: top L, at most grid L, at most top K."""
    truth, rank = exact(curvature), share(curvature, part)
    grid, completed = low_rank_efb(curvature, rank=rank, support="grid")
    top_k, _ = low_rank_efb(curvature, rank=rank, support="top")
    top_l, _ = low_rank_efb(curvature, rank=completed, support="top")
    assert error(truth, top_l) <= error(truth, grid) + ROUNDING
    assert error(truth, grid) <= error(truth, top_k) + ROUNDING


def test_the_direction_that_lemma_four_prints_is_wrong(networks: dict[str, Laplace]) -> None:
    """Erratum: it says top L, at least grid L, at least top K."""
    strict = [0, 0]
    for network, layer in LAYERS:
        one = networks[network].curvature[layer]
        truth, rank = exact(one), share(one, 0.05)
        grid, completed = low_rank_efb(one, rank=rank, support="grid")
        top_k, _ = low_rank_efb(one, rank=rank, support="top")
        top_l, _ = low_rank_efb(one, rank=completed, support="top")
        strict[0] += error(truth, top_l) < error(truth, grid) - 1e-6
        strict[1] += error(truth, grid) < error(truth, top_k) - 1e-6
    assert min(strict) > 0


def test_ours_is_closest_to_the_exact_off_diagonals_in_every_layer_of_a_cnn(networks: dict[str, Laplace]) -> None:
    laplace = networks["digits CNN"]
    forms: dict[str, dict[str, Any]] = {
        "KFAC": {"structure": "okf-paper"},
        "EFB": {"structure": "efb-paper"},
        "INF, paper, 5 %": {"structure": "inf-paper", "rank": 0.05},
        "INF, ours, 5 %": {"structure": "inf", "rank": 0.05},
    }
    table: dict[str, dict[str, float]] = {}
    for form, options in forms.items():
        posterior = laplace.posterior(prior_precision=0.0, num_data=1.0, **options)
        for name, layer in posterior.layers.items():
            table.setdefault(name, {})[form] = off_diagonal_error(exact(laplace.curvature[name]), layer.dense())
    print("\noff-diagonal error", *forms, sep=" | ")
    for name, row in table.items():
        print(
            f"{laplace.layers[name].module}, {laplace.curvature[name].shape}",
            *(f"{row[form]:.3f}" for form in forms),
            sep=" | ",
        )
    assert len(table) == 4
    for name, row in table.items():
        ours = row.pop("INF, ours, 5 %")
        assert all(ours < other for other in row.values()), f"layer {name}: {ours} of {row}"


def off_diagonal_error(truth: Tensor, found: Tensor) -> float:
    off = ~torch.eye(len(truth), dtype=torch.bool)
    return float((truth - found)[off].norm() / truth[off].norm())
