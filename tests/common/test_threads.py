"""Work side by side: in order, one thread each, and torch's number of threads as found."""

import threading

import pytest
import torch

import bounded
from infoform.common.threads import side_by_side


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_results_come_in_order_from_work_on_one_thread_each(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = side_by_side(lambda item: (item, torch.get_num_threads()), range(9))
        assert found == [(item, 1) for item in range(9)]
        assert torch.get_num_threads() == threads
        new: list[int] = []
        other = threading.Thread(target=lambda: new.append(torch.get_num_threads()), daemon=True)
        other.start()
        bounded.join(other)
        assert new == [threads]
    finally:
        torch.set_num_threads(before)


def test_the_number_of_threads_is_as_found_after_an_exception() -> None:
    before = torch.get_num_threads()

    def fail(item: int) -> None:
        raise MemoryError(item)

    with pytest.raises(MemoryError):
        side_by_side(fail, [1, 2])
    assert torch.get_num_threads() == before
