"""When the recorder looks at what the program keeps."""

import pytest

from tb_memplugin.model import MISSING
from tb_memplugin.recorder import kept_rows
from tb_memplugin.recorder.kept_rows import GROWTH_BYTES, KeptRows
from tb_memplugin.recorder.observe.heap.kept_objects import Kept


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each look."""
    found: list[int] = []

    def look() -> tuple[list[Kept], list[Kept]]:
        found.append(1)
        return [Kept("list", 2, 8)], [Kept("dict", 3, None)]

    monkeypatch.setattr(kept_rows, "kept_objects", look)
    return found


def test_it_looks_at_first_and_after_ever_larger_growth(looks: list[int]) -> None:
    rows = KeptRows(0.005)
    counts = []
    for resident in range(0, 16 * GROWTH_BYTES, GROWTH_BYTES // 2):
        rows.look(resident)
        counts.append(len(looks))
    assert [counts.index(number) // 2 for number in (1, 2, 3, 4)] == [0, 1, 3, 7] and max(counts) == 5
    assert rows.values == [("kept_arrays", "list", 2, 8, None), ("kept_iterators", "dict", 3, MISSING, None)]


def test_without_a_budget_it_does_not_look(looks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert KeptRows(0.0).look(1) == 0.0 and looks == []
    monkeypatch.setattr(kept_rows, "FREE_SECONDS", -1.0)
    assert KeptRows(0.005).look(1) == 0.0 and looks == []
