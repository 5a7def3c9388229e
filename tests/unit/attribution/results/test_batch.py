"""The number of examples where the recorder knows only the other dimensions of a batch."""

import numpy as np
import pytest

from tb_memplugin.attribution.owners.step_chunks import StepChunks
from tb_memplugin.attribution.results.batch import batch_size, component_sizes
from tb_memplugin.model import Category, ChunkOwner
from tb_memplugin.model.trace import BatchFacts

OPEN = BatchFacts(None, (((-1, 64), "float32"), ((-1,), "int64")))
Row = tuple[int, int, int, Category]
"""(requested bytes, birth, death, category) of a chunk of a step of 100 events."""


def chunks(*rows: Row) -> StepChunks:
    size, birth, death = (np.asarray(column, np.int64) for column in list(zip(*rows, strict=True))[:3])
    count = len(rows)
    return StepChunks(
        step=0,
        phase="train",
        address=np.arange(count) * 65_536,
        allocated=size,
        requested=size,
        birth=birth,
        death=death,
        owner=np.arange(count),
        owners=tuple(ChunkOwner(None, category, None) for *_, category in rows),
        events=100,
        ops={},
    )


def batch(examples: int, birth: int, death: int, category: Category = "inputs") -> list[Row]:
    return [(256 * examples, birth, death, category), (8 * examples, birth, death, category)]


def test_a_recorded_size_needs_nothing_else() -> None:
    assert batch_size(BatchFacts(16, OPEN.components), []) == 16
    assert batch_size(BatchFacts(16), [chunks(*batch(32, 3, 7))]) == 16


@pytest.mark.parametrize(("birth", "death"), [(3, 100), (-1, 40), (3, 40)])
def test_the_step_allocates_or_frees_the_batch_and_keeps_the_data_set(birth: int, death: int) -> None:
    step = chunks(*batch(4096, -1, 100), *batch(16, birth, death), *batch(1, 5, 6))
    assert batch_size(OPEN, [None, step]) == 16


def test_every_tensor_of_the_batch_must_have_that_many_examples() -> None:
    step = chunks((256 * 24, 3, 7, "inputs"), (8 * 25, 3, 7, "inputs"))
    assert batch_size(OPEN, [step]) is None
    assert batch_size(OPEN, [chunks(*batch(16, 3, 7, "workspace"))]) is None
    assert batch_size(BatchFacts(None, (((-1, -1), "float32"),)), [chunks(*batch(16, 3, 7))]) is None
    assert batch_size(BatchFacts(), [chunks(*batch(16, 3, 7))]) is None


def test_bytes_of_a_batch() -> None:
    given = BatchFacts(None, (*OPEN.components, ((16, 3), "uint8"), ((5, 3), "uint8"), ((-1, -1), "int32")))
    assert component_sizes(given, 16) == {16 * 256, 16 * 8, 16 * 3}
