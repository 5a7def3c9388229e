"""Names of variables whose model is gone; real ones are in tests/integration/test_former_variables.py."""

import pytest

from tb_memplugin.recorder.observe.model.former_variables import FormerVariables


class Model:
    name = "fold"


class Handle:
    """Stands for a variable's resource handle."""


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        ("fold/dense", "fold, no longer used/dense"),
        ("fold#2/block#3/dense", "fold, no longer used/block#3/dense"),
        ("fold#2", "fold, no longer used"),
        (None, "fold, no longer used"),
    ],
)
def test_a_model_that_is_gone_has_its_name_without_the_number_among_those_alive(layer: str | None, named: str) -> None:
    former, handle, model = FormerVariables(), Handle(), Model()
    former.note(handle, "weights", layer, model, None)
    (_, owner) = former._owners[id(handle)]
    assert owner.path() == layer
    del model
    assert owner.path() == named
