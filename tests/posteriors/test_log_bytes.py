"""One byte a weight: never above what it stands for, and never far below."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from infoform.posteriors import log_bytes as logscale

positive = st.floats(min_value=1e-300, max_value=1e300)
lists = st.lists(st.one_of(positive, st.just(0.0)), min_size=1, max_size=40)


def roundtrip(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    codes, scale = logscale.encode(values)
    assert codes.dtype == torch.uint8
    assert codes.shape == values.shape
    assert scale.shape == (2,)
    return logscale.decode(codes, scale, values.dtype), codes, scale


@settings(deadline=None)
@given(lists)
def test_a_decoded_value_never_exceeds_the_encoded_one(given_values: list[float]) -> None:
    values = torch.tensor(given_values, dtype=torch.float64)
    decoded, _, _ = roundtrip(values)
    assert (decoded <= values).all()
    assert (decoded >= 0).all()
    assert decoded.isfinite().all()


@settings(deadline=None)
@given(st.lists(st.floats(min_value=2.0**-100, max_value=2.0**100, width=32), min_size=1, max_size=40))
def test_nor_does_it_in_float32(given_values: list[float]) -> None:
    values = torch.tensor(given_values, dtype=torch.float32)
    decoded, _, _ = roundtrip(values)
    assert (decoded <= values).all()


@settings(deadline=None)
@given(lists)
def test_a_decoded_value_is_at_most_one_step_below(given_values: list[float]) -> None:
    values = torch.tensor(given_values, dtype=torch.float64)
    decoded, _, scale = roundtrip(values)
    near = (values > 0) & (values.log2() >= values.max().log2() - logscale.OCTAVES)
    below = values[near].log2() - decoded[near].log2()
    assert (below <= min(float(scale[1]), logscale.OCTAVES / 254) + 2 * logscale.SLACK).all()


@settings(deadline=None)
@given(lists)
def test_zero_stays_zero_and_only_what_is_negligible_becomes_zero(given_values: list[float]) -> None:
    values = torch.tensor(given_values, dtype=torch.float64)
    decoded, codes, _ = roundtrip(values)
    assert not decoded[values == 0].any()
    assert not codes[values == 0].any()
    kept = (values > 0) & (values.log2() >= values.max().log2() - logscale.OCTAVES)
    assert (decoded[kept] > 0).all()


@settings(deadline=None)
@given(positive, st.integers(min_value=1, max_value=10))
def test_a_constant_is_kept_as_it_is(value: float, count: int) -> None:
    values = torch.full((count, 2), value, dtype=torch.float64)
    decoded, _, _ = roundtrip(values)
    assert (decoded <= values).all()
    assert (decoded >= values * (1 - 1e-8)).all()


def test_all_zeros_stay_zeros() -> None:
    decoded, codes, _ = roundtrip(torch.zeros(3, 4, dtype=torch.float64))
    assert not decoded.any()
    assert not codes.any()


def test_a_huge_range_keeps_its_upper_octaves() -> None:
    values = torch.logspace(-300, 300, 601, dtype=torch.float64)
    decoded, codes, scale = roundtrip(values)
    small = values.log2() < values.max().log2() - logscale.OCTAVES
    assert not decoded[small].any()
    assert (decoded[~small] > values[~small] * 0.9).all()
    assert (codes.diff().int() >= 0).all(), "codes keep the order"
    assert float(scale[1]) <= logscale.OCTAVES / 254
