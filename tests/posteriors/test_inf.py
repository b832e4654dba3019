"""The sparse information form: exact diagonal at every rank, what the paper's correction loses, bytes, the erratum."""

import itertools
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from curvatures import POSTERIORS, make_curvature, random_gradients
from dense import exact_vectors, make_reference
from flat import flat_laplace
from infoform import Inf, Isotropic, Laplace
from infoform.curvature.curvature import Curvature
from infoform.curvature.eigenbasis import expanded_diagonal
from infoform.curvature.subsampling import WHOLE_RESIDUAL, subsample_weights
from infoform.likelihoods import get_likelihood
from infoform.posteriors import CORES, STRUCTURES, InfPosterior
from infoform.posteriors.inf.posterior import LEAST_REMAINDER, SCALE_OCTAVES
from infoform.posteriors.quantise import read_back, round_to
from infoform.priors import LayerPrior

G, A = 4, 6
RANKS = range(1, G * A + 1)
DTYPES = {
    "float64": (torch.float64, None),
    "float32": (torch.float32, None),
    "bfloat16 storage": (torch.float32, torch.bfloat16),
    "bytes": (torch.float64, torch.uint8),
}


def layer(
    *, dtype: torch.dtype = torch.float64, columns: tuple[int, int] | None = None, examples: int = 12, seed: int = 0
) -> Curvature:
    a, g = random_gradients(examples=examples, shape=(G, A), seed=seed)
    return make_curvature(a, g, basis_columns=columns, zero_weights=((1, 3),), dtype=dtype)


def inf(
    curvature: Curvature, *, prior: LayerPrior | None = None, num_data: float = 40.0, **options: Any
) -> InfPosterior:
    return InfPosterior.from_curvature(curvature, prior=prior or LayerPrior(0.7), num_data=num_data, **options)


def diagonals(curvature: Curvature, basis: str) -> tuple[Tensor, Tensor]:  # (G, A), (G, A)
    """Return f and q, what a truncated basis leaves out included."""
    eigen = curvature.bases[basis]
    q = expanded_diagonal(eigen.input_vectors, eigen.gradient_vectors, eigen.eigenvalues)
    assert curvature.diagonal is not None
    return curvature.diagonal, q if eigen.residual is None else q + eigen.residual


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("columns", [None, (3, 4)], ids=["whole basis", "truncated basis"])
@pytest.mark.parametrize("basis", ["gradient", "activation"])
@pytest.mark.parametrize("support", ["top", "grid"])
@pytest.mark.parametrize("core", CORES)
def test_the_scaled_diagonal_is_exact_at_every_rank(
    kind: str, columns: tuple[int, int] | None, basis: str, support: str, core: str
) -> None:
    dtype, storage = DTYPES[kind]
    curvature = layer(dtype=dtype, columns=columns)
    f, q = diagonals(curvature, basis)
    rtol = 1e-9 if dtype == torch.float64 else 1e-5
    for rank in RANKS if columns is None else range(1, 13):
        posterior = inf(curvature, rank=rank, basis=basis, support=support, storage=storage, core=core)
        stored = read_back(*round_to(f, storage), dtype)
        assert posterior.information.dtype == (storage or dtype)
        assert_close(posterior.dense().diag().reshape(G, A), 40 * stored + 0.7, rtol=rtol, atol=0)
        assert_close(posterior.diagonal(), 40 * stored + 0.7, rtol=rtol, atol=0)
        assert (posterior.remainder >= 0).all()
        assert (posterior.remainder[stored > 0] > 0).all()
        assert posterior.remainder[1, 3] == 0
        assert posterior.clipped == 0
        assert posterior.scale is not None
        assert posterior.scale[1, 3] == 0
        if core == "full":
            continue
        if storage is None:  # with rounded vectors q is another, and D >= 0 says the same of that one
            assert (posterior.scale**2 * q <= stored).all(), "S² is rounded down"
        # and not far: a step of the scale, and the share of f that is always left in D
        step = 2.0 ** (SCALE_OCTAVES / 254)
        assert (posterior.scale**2 * q * step * (1 + 2.0**-9) >= stored).all()


def test_inputs_that_the_residual_never_saw_do_not_turn_all_other_weights_into_a_diagonal() -> None:
    """A basis that is truncated, and inputs that are not 0 in a single example, of which the residual is not taken."""
    torch.manual_seed(0)
    examples, width = 160, 160
    seen = subsample_weights(range(examples), whole=WHOLE_RESIDUAL) > 0
    x = torch.randn(examples, width, dtype=torch.float64).relu() + torch.randn(examples, 1, dtype=torch.float64).relu()
    x[:, 150:] = 0
    x[101] = torch.zeros(width, dtype=torch.float64)
    x[101, 150:] = 1e-6
    assert not seen[101]
    model = nn.Linear(width, 3, bias=False).double()
    laplace = flat_laplace(model, "classification", fisher="exact", prior="isotropic").fit([x], progress=False)
    assert laplace.curvature[""].bases["gradient"].residual is not None, "the case shows nothing"
    posterior = laplace.posterior(num_data=1.0, prior_precision=1e-9).layers[""]
    vectors = exact_vectors(get_likelihood("classification"), model(x).detach())
    exact = make_reference(model, "", x, vectors).block
    found = posterior.dense()
    assert_close(found.diag(), exact.diag() + 1e-9, rtol=1e-9, atol=0)
    rest = exact - exact.diag().diag()
    assert (found - found.diag().diag() - rest).norm() < 0.5 * rest.norm(), "a diagonal alone has 1"


def test_the_remainder_is_what_the_kept_pairs_do_not_explain() -> None:
    curvature = layer()
    f, q = diagonals(curvature, "gradient")
    eigen = curvature.bases["gradient"]
    for rank in RANKS:
        posterior = inf(curvature, rank=rank, core="diagonal")
        threshold = eigen.eigenvalues.flatten().sort(descending=True).values[rank - 1]
        kept = torch.where(eigen.eigenvalues >= threshold, eigen.eigenvalues, 0)
        q_kept = expanded_diagonal(eigen.input_vectors, eigen.gradient_vectors, kept)
        exact = f * (1 - q_kept / q)  # without rounding S
        assert (posterior.remainder >= exact - 1e-12).all()
        assert (posterior.remainder <= exact + 0.1 * f).all()


def test_more_pairs_leave_less_in_the_remainder() -> None:
    curvature = layer()
    total = [float(inf(curvature, rank=rank, core="diagonal").remainder.sum()) for rank in RANKS]
    assert all(more >= less for more, less in itertools.pairwise(total))


@pytest.mark.parametrize("support", ["top", "grid"])
def test_the_additive_remainder_is_the_papers_difference_and_clipping_is_counted(support: str) -> None:
    curvature = layer()
    f, _ = diagonals(curvature, "activation")
    eigen = curvature.bases["activation"]
    most = 0
    for rank in RANKS:
        options: dict[str, Any] = {"rank": rank, "basis": "activation", "support": support, "correction": "additive"}
        options["core"] = "diagonal"
        plain, clipped = inf(curvature, **options, clip=False), inf(curvature, **options)
        rows, columns = plain.indices
        kept = torch.zeros(plain.gradient_vectors.shape[1], plain.input_vectors.shape[1], dtype=torch.float64)
        kept[rows, columns] = plain.eigenvalues
        difference = f - expanded_diagonal(plain.input_vectors, plain.gradient_vectors, kept)
        assert_close(plain.remainder, difference, rtol=0, atol=0)
        assert plain.scale is None
        assert plain.clipped == 0
        assert_close(plain.dense().diag().reshape(G, A), 40 * f + 0.7, rtol=1e-9, atol=1e-12)
        assert torch.equal(clipped.remainder, difference.clamp_min(0))
        assert clipped.clipped == int((difference < 0).sum())
        most = max(most, clipped.clipped)
        if support == "top":
            assert plain.rank == rank
            assert_close(plain.eigenvalues.sort().values, eigen.eigenvalues.flatten().sort().values[-rank:])
    assert most > 0, "the case shows nothing"


def test_rounding_at_a_dead_unit_does_not_count_as_clipping() -> None:
    a, g = random_gradients(examples=300, shape=(G, A), zero_rows=(1,), zero_columns=(2,))
    curvature = make_curvature(a, g)
    for basis in ("gradient", "activation"):
        posterior = inf(curvature, rank=1, basis=basis, correction="additive", prior=LayerPrior(0.0))
        assert posterior.clipped == 0
        assert posterior.log_det().isfinite()


@pytest.mark.parametrize(
    ("structure", "said"),
    [
        ("inf-paper", r"structure='inf-paper' is the paper's form as printed.*not positive definite.*set to 0"),
        (Inf(correction="additive", clip=False), "correction='additive' is the paper's form.*most of what is asked"),
    ],
)
def test_the_papers_correction_is_said_not_to_be_positive_definite(structure: str | Inf, said: str) -> None:
    with pytest.warns(UserWarning, match=said) as told:
        Laplace(nn.Linear(3, 2), "classification", structure=structure)
    assert len(told) == 1
    assert told[0].filename == __file__  # where the user wrote it: Python shows it once


def test_the_sound_structures_have_nothing_to_warn_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for structure in (*STRUCTURES, "efb-paper", "okf-paper"):
            Laplace(nn.Linear(3, 2), "classification", structure=structure)


@pytest.mark.parametrize(
    ("rank", "measured"), [(1, 1), (4, 5), (7, 8), (100, 125), (409, 511), (410, 512), (2000, 512), ({"0": 8}, 10)]
)
def test_a_quarter_more_pairs_are_measured_together_than_are_kept(rank: Any, measured: int) -> None:
    assert Inf(rank=rank).statistics().core_size == measured  # 1.25 K, at most 512, as docs/math.md says


def test_the_measured_pairs_hold_the_kept_ones_that_a_fit_of_all_pairs_finds() -> None:
    # what the choice before the second pass is for: with a quarter more pairs the largest are among them
    torch.manual_seed(0)
    model = nn.Linear(12, 5).double()
    x = torch.randn(60, 12, dtype=torch.float64) * torch.linspace(2, 0.2, 12, dtype=torch.float64)
    laplace = flat_laplace(model, "classification", structure="inf", rank=8, fisher="exact").fit([x], progress=False)
    eigen = laplace.curvature[""].bases["gradient"]
    assert eigen.core_pairs is not None
    assert eigen.core_pairs.shape[1] == 10
    kept = eigen.eigenvalues.flatten().topk(8).indices
    measured = eigen.core_pairs[0] * eigen.eigenvalues.shape[1] + eigen.core_pairs[1]
    assert int(torch.isin(kept, measured).sum()) >= 7


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_at_full_rank_it_is_the_exact_block_and_a_known_share_of_its_diagonal(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(A - 1, G), torch.randn(30, A - 1)
    options: dict[str, Any] = {"prior": Isotropic(1e-3), "statistics": "all", "fisher": "exact"}
    wide = flat_laplace(model.double(), "classification", structure="full", **options)
    full = wide.fit([x.double()], progress=False).posterior().layers[""]
    narrow = flat_laplace(model.to(dtype), "classification", structure="inf", rank=G * A, **options)
    found = narrow.fit([x.to(dtype)], progress=False).posterior().layers[""]
    share = LEAST_REMAINDER.get(dtype, 2.0**-10)
    information = full.dense() - 1e-3 * torch.eye(G * A, dtype=torch.float64)
    extra = share * information.diagonal().diag()
    expected = (1 - share) * information + extra + 1e-3 * torch.eye(G * A, dtype=torch.float64)
    assert_close(found.dense().double(), expected, rtol=1e-4, atol=1e-4 if dtype == torch.float32 else 1e-7)
    # so no variance is larger than (1 - share)^-1 of the exact one, nor smaller than that with the extra precision
    jacobians = torch.randn(200, 1, G, A, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = full.covariance(jacobians).flatten()
    flat = jacobians.flatten(1)
    least = (flat * torch.linalg.solve(full.dense() + extra, flat.T).T).sum(1)
    variance = found.covariance(jacobians.to(dtype)).double().flatten()
    rounding = 2e-3 if dtype == torch.float32 else 1e-5  # of S², which is stored a little below its value
    assert bool((variance <= exact / (1 - share) * (1 + rounding)).all())
    assert bool((variance >= least * (1 - rounding)).all())


def test_coverage_reports_what_the_papers_correction_clips() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 5, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (40,), generator=generator)
    laplace = flat_laplace(model, "classification", structure="inf-paper", rank=20, fisher="exact")
    laplace.fit([(x, y)], progress=False)
    layers = laplace.posterior().layers
    for row in laplace.coverage():
        assert row.layer is not None
        posterior = layers[row.layer]
        assert isinstance(posterior, InfPosterior)
        assert posterior.clipped > 0
        share = posterior.clipped / (posterior.shape[0] * posterior.shape[1])
        assert f"clipped at 0 for {share:.0%} of its weights" in row.reason
    ours = flat_laplace(model, "classification", structure="inf", rank=20, fisher="exact").fit([(x, y)], progress=False)
    assert not any("clipped" in row.reason for row in ours.coverage())


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("correction", ["scaled", "additive"])
@pytest.mark.parametrize("rank", [1, 5, G * A])
@pytest.mark.parametrize("core", CORES)
def test_the_bytes_are_those_of_the_documented_tensors(kind: str, correction: str, rank: int, core: str) -> None:
    dtype, storage = DTYPES[kind]
    curvature = layer(dtype=dtype)
    posterior = inf(curvature, rank=rank, correction=correction, storage=storage, core=core)
    rows, columns = posterior.indices
    width = dtype.itemsize
    expected = G * A * (storage or dtype).itemsize + (16 if storage == torch.uint8 else 0)  # f
    used = len(rows.unique()) * G + len(columns.unique()) * A  # entries of the used eigenvectors
    expected += used * (2 if storage is not None else dtype.itemsize)
    expected += rank * width + 2 * 2 * rank  # eigenvalues, and two bytes for each of their indices
    if core == "full":
        pairs = curvature.bases["gradient"].core_pairs
        assert pairs is not None
        coupled = min(rank, pairs.shape[1])
        expected += coupled * (coupled - 1) // 2 * width
    if correction == "scaled":
        assert posterior.scale_codes is not None
        assert posterior.scale_codes.dtype == torch.uint8
        assert posterior.scale_codes.shape == (G, A)
        expected += G * A + 2 * 8  # one byte a weight, and the scale itself
    assert posterior.nbytes == expected
    assert posterior.gradient_vectors.shape == (G, len(rows.unique()))
    assert posterior.input_vectors.shape == (A, len(columns.unique()))


def test_the_grid_support_keeps_a_kronecker_product() -> None:
    posterior = inf(layer(), rank=5, support="grid")
    assert posterior.rank == posterior.gradient_vectors.shape[1] * posterior.input_vectors.shape[1]
    assert posterior.rank >= 5


def papers_factor(low_rank: Tensor, diagonal: Tensor, *, corrected: bool) -> Tensor:  # (GA, L), (GA,) -> (GA, GA)
    """Return F^c of the paper's eq. (sampling) for P = V Vᵀ + D, as printed or corrected."""
    root = diagonal.rsqrt()
    v_s = root[:, None] * low_rank
    gram = v_s.T @ v_s
    eye, big_eye = torch.eye(len(gram), dtype=gram.dtype), torch.eye(len(diagonal), dtype=gram.dtype)
    a_c = torch.linalg.cholesky(gram)
    b_c = torch.linalg.cholesky((a_c.T @ a_c if corrected else gram) + eye)
    a_inverse = torch.linalg.inv(a_c)
    c = a_inverse.T @ (b_c - eye) @ a_inverse
    w_inverse = big_eye - v_s @ torch.linalg.inv(torch.linalg.inv(c) + gram) @ v_s.T
    factor: Tensor = root[:, None] * (w_inverse.T if corrected else w_inverse)
    return factor


def test_the_papers_printed_sampler_does_not_have_the_posterior_covariance() -> None:
    worst = 0.0
    for seed in range(10):
        posterior = inf(layer(seed=seed), rank=3, support="grid", core="diagonal")
        assert posterior.scale is not None
        rows, columns = posterior.indices
        kept = posterior.gradient_vectors[:, None, rows] * posterior.input_vectors[None, :, columns]
        low_rank = (posterior.scale[..., None] * kept).flatten(0, 1) * (40 * posterior.eigenvalues).sqrt()
        diagonal = (40 * posterior.remainder + 0.7).flatten()
        precision = posterior.dense()
        eye = torch.eye(G * A, dtype=torch.float64)
        assert_close(low_rank @ low_rank.T + diagonal.diag(), precision, rtol=1e-9, atol=1e-9)
        printed = papers_factor(low_rank, diagonal, corrected=False)
        corrected = papers_factor(low_rank, diagonal, corrected=True)
        worst = max(worst, float((printed @ printed.T @ precision - eye).abs().max()))
        assert_close(corrected @ corrected.T @ precision, eye, rtol=0, atol=1e-10)
        ours = posterior.transform(eye.reshape(-1, G, A)).flatten(1).T
        assert_close(ours @ ours.T @ precision, eye, rtol=0, atol=1e-10)
    assert worst > 1e-3


@pytest.mark.parametrize("columns", [None, (3, 4)], ids=["whole basis", "truncated basis"])
def test_kept_pairs_that_were_measured_together_are_exact_along_their_vectors(
    columns: tuple[int, int] | None,
) -> None:
    curvature = layer(columns=columns)
    eigen = curvature.bases["gradient"]
    assert eigen.core_pairs is not None
    assert curvature.block is not None
    posterior = inf(
        curvature,
        rank=eigen.core_pairs.shape[1],
        correction="additive",
        clip=False,
        num_data=1.0,
        prior=LayerPrior(0.0),
    )
    rows, columns_kept = posterior.indices
    basis = posterior.gradient_vectors[:, None, rows] * posterior.input_vectors[None, :, columns_kept]
    basis = basis.flatten(0, 1)  # (GA, K)
    low_rank = posterior.dense() - posterior.remainder.flatten().diag()
    assert_close(basis.T @ low_rank @ basis, basis.T @ curvature.block @ basis, rtol=1e-9, atol=1e-9)


def test_a_core_is_nearer_to_the_exact_block_than_its_diagonal() -> None:
    curvature = layer()
    block = curvature.block
    assert block is not None
    off = ~torch.eye(G * A, dtype=torch.bool)

    def error(rank: int, core: str) -> float:
        found = inf(curvature, rank=rank, core=core, num_data=1.0, prior=LayerPrior(0.0)).dense()
        return float((found - block)[off].norm())

    eigen = curvature.bases["gradient"]
    basis = torch.kron(eigen.gradient_vectors, eigen.input_vectors)
    every = torch.arange(G * A)
    whole = replace(eigen, core_pairs=torch.stack([every // A, every % A]), core=basis.T @ block @ basis)
    curvature = replace(curvature, bases={"gradient": whole})
    for rank in range(4, G * A + 1):
        assert error(rank, "full") < error(rank, "diagonal")


def test_objects_that_differ_in_the_prior_share_what_does_not_depend_on_it() -> None:
    one = inf(layer(), rank=5)
    first = one.with_prior(LayerPrior(2.0), 10.0)
    second = first.with_prior(LayerPrior(3.0), 20.0)
    assert first.remainder is second.remainder is one.remainder
    assert not torch.equal(first.diagonal(), second.diagonal())
    assert_close(second.dense(), inf(layer(), rank=5, prior=LayerPrior(3.0), num_data=20.0).dense())


@pytest.mark.parametrize("structure", ["inf", "diag"])
def test_bytes_are_off_by_half_a_step_at_most(structure: str) -> None:
    curvature = layer(examples=300)
    assert curvature.diagonal is not None
    options = {"rank": 5} if structure == "inf" else {}
    posterior = POSTERIORS[structure].from_curvature(
        curvature, prior=LayerPrior(0.0), num_data=1.0, storage=torch.uint8, **options
    )
    assert posterior.state_dict()["information"].dtype == torch.uint8
    found, exact = posterior.diagonal().double(), curvature.diagonal
    octaves = float((exact[exact > 0].max() / exact[exact > 0].min()).log2())
    assert (found[exact == 0] == 0).all()
    assert float((found / exact)[exact > 0].log2().abs().max()) <= octaves / 254 / 2 * (1 + 1e-6)


def test_a_remainder_that_may_be_negative_is_not_stored_as_bytes() -> None:
    with pytest.raises(ValueError, match="storage='uint8' keeps a logarithm"):
        inf(layer(), rank=5, correction="additive", clip=False, storage=torch.uint8)


@pytest.mark.parametrize("rank", [4, 20])
@pytest.mark.parametrize("prior_rank", [0, 3])
@pytest.mark.parametrize("correction", ["scaled", "additive"])
def test_samples_formed_some_rows_at_a_time_are_the_same(
    rank: int, prior_rank: int, correction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 4)).double()
    loader = [(torch.randn(20, 6, dtype=torch.float64), torch.arange(20) % 4)]
    options: dict[str, Any] = {"rank": rank, "correction": correction, "prior": "activation", "prior_rank": prior_rank}
    laplace = flat_laplace(model, "classification", **options).fit(loader, progress=False)
    for layer in laplace.posterior(prior_precision=0.3).layers.values():
        noise = torch.randn(3, *layer.shape, dtype=torch.float64)
        whole = layer.transform(noise)
        for room in (1, 50, 100):
            monkeypatch.setattr("infoform.posteriors.inf.sampling.PART", room)
            torch.testing.assert_close(layer.transform(noise), whole, rtol=1e-11, atol=1e-12)
        monkeypatch.undo()
