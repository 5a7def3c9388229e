"""Which timelines and requests are kept."""

from tb_memplugin.recorder.helper.kept import KeptRequests, KeptTimelines


def test_timelines_thin_out_by_powers_of_two_but_a_new_highest_peak_is_kept() -> None:
    kept = KeptTimelines()
    steps = [number for number in range(300) if kept.wants("GPU:0", "train", 100)]
    # All of the first 64, every second one up to 128, every fourth one up to 256, then every eighth
    # one.
    assert steps == [*range(64), *range(64, 128, 2), *range(128, 256, 4), *range(256, 300, 8)]
    kept = KeptTimelines()
    for _ in range(65):
        kept.wants("GPU:0", "train", 100)
    found = [kept.wants("GPU:0", "train", peak) for peak in (100, 101, 101, 101, 102)]
    # The second and the fourth one have an odd number.
    assert found == [False, True, False, True, True]
    assert kept.wants("GPU:0", "validation", 1) and kept.wants("GPU:1", "train", 1)


def kept(*steps: tuple[int | None, bool]) -> list[bool]:
    requests = KeptRequests()
    return [requests.wants("GPU:0", "train", batch, 1000, first) for batch, first in steps]


def test_a_step_with_another_peak_is_kept_beside_three_of_its_batch_size() -> None:
    requests = KeptRequests()
    peaks = (1000, 1010, 1020, 1030, 1200, 1210, 800)
    found = [requests.wants("GPU:0", "train", 4, peak, False) for peak in peaks]
    assert found == [True, True, True, False, True, False, True]


def test_three_steps_of_a_batch_size_are_kept_beside_the_first_one_and_nine_after_a_change() -> (
    None
):
    assert kept((4, True), *[(4, False)] * 5) == [True] * 4 + [False] * 2
    assert kept(*[(4, False)] * 4, (8, False)) == [True] * 3 + [False, True]
    assert kept(*[(None, False)] * 4) == [True] * 3 + [False]
    # AND those that are not kept leave room for other batch sizes
    assert kept(*[(4, False)] * 60, (8, False)) == [True] * 3 + [False] * 57 + [True]
    assert kept((1, True), *[(size, False) for size in range(1, 12)]) == [True] * 9 + [False] * 3
    # AND again after the next one, with the same batch sizes
    sizes = [(size, False) for size in range(1, 12)]
    assert kept((1, True), *sizes, (1, True), *sizes) == ([True] * 9 + [False] * 3) * 2
