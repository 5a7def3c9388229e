"""Fields of a record as a JSON object."""

from tb_memplugin.model import Band, TensorShape
from tb_memplugin.model.basics import fields_of


def test_fields_by_name() -> None:
    assert fields_of(Band("forward", 3, 5), "end", "name") == {"end": 5, "name": "forward"}
    assert fields_of(TensorShape((2, 3), "int32"), "shape") == {"shape": [2, 3]}
