import torch
from torch.testing import assert_close

from infoform.export.stored_weights import PRECISIONS, StoredWeights, in_int8


def test_int8_is_within_half_a_step_of_each_row() -> None:
    torch.manual_seed(0)
    weight = torch.randn(20, 30) * torch.logspace(-3, 3, 20)[:, None]
    steps, whole = in_int8(weight)
    assert whole.dtype == torch.int8
    assert bool(((whole * steps - weight).abs() <= 0.5001 * steps).all())


def test_bytes_fall_with_the_precision_and_small_tensors_stay_as_they_are() -> None:
    tensors = {"a.weight": torch.randn(40, 50), "a.bias": torch.randn(40), "count": torch.tensor(3)}
    sizes = []
    for precision in PRECISIONS:
        stored = StoredWeights(tensors, precision)
        restored = stored.restored()
        assert_close(restored["a.bias"], tensors["a.bias"], rtol=0, atol=0)
        assert restored["count"] == 3
        assert_close(restored["a.weight"], tensors["a.weight"], rtol=1e-3, atol=0.02)
        sizes.append(sum(one.nbytes for one in stored.buffers()))
    assert sizes == [8000 + 160 + 8, 4000 + 160 + 8, 2000 + 160 + 160 + 8]
