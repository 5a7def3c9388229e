"""Bytes of the tensors of a batch."""

from tb_memplugin.attribution.results.batch import component_sizes
from tb_memplugin.model.trace import BatchFacts


def test_bytes_of_a_batch() -> None:
    components = (((-1, 64), "float32"), ((-1,), "int64"), ((16, 3), "uint8"), ((5, 3), "uint8"), ((-1, -1), "int32"))
    assert component_sizes(BatchFacts(None, components), 16) == {16 * 256, 16 * 8, 16 * 3}
