"""A digest tells which share of data is in other data, from a sample of bounded size."""

from collections.abc import Sequence

import pytest
import torch

from infoform.cli.data_digest import DIGITS, SAMPLE, DataDigest, data_digest
from infoform.cli.sources.base import Data


def digest_of(numbers: Sequence[int], *, size: int = 100, earlier: Sequence[str] = ()) -> DataDigest:
    """Return the digest of examples with these numbers as inputs."""
    x = torch.tensor(numbers, dtype=torch.float64).unsqueeze(1)
    return data_digest(Data([(part, part[:, 0]) for part in x.split(size)]), earlier=earlier)


def test_order_and_batches_make_no_difference() -> None:
    assert digest_of(range(3000)) == digest_of(range(3000)[::-1], size=7)
    assert len(digest_of(range(3000)).sample) == SAMPLE * DIGITS


@pytest.mark.parametrize(("first", "second", "share"), [
    (range(50), range(50, 90), 0.0),
    (range(50), range(40, 60), 0.5),
    (range(50), range(20), 1.0),
    (range(50), [*range(10), *range(10), *range(60, 80)], 0.5),
])  # fmt: skip
def test_the_share_of_small_data_is_exact(first: Sequence[int], second: Sequence[int], share: float) -> None:
    assert digest_of(second, earlier=[digest_of(first).sample]).known == share


def test_the_share_of_large_data_is_estimated() -> None:
    earlier = [digest_of(range(20_000)).sample, digest_of(range(50_000, 51_000)).sample]
    found = digest_of(range(15_000, 25_000), earlier=earlier)
    assert abs(found.known - 0.5) < 5 * (0.25 / (SAMPLE / 2)) ** 0.5
    assert digest_of(range(30_000, 45_000), earlier=earlier).known == 0.0
