"""Names of former optimizers and models are told from the paths of layers in use."""

import pytest

from tb_memplugin.model.former import former_name, replaced_optimizer, unused


@pytest.mark.parametrize("name", [replaced_optimizer("Adam", 72), unused("resnet50")])
def test_a_path_that_begins_with_a_former_name_gives_that_name(name: str) -> None:
    assert former_name(name) == former_name(f"{name}/net/dense") == name


@pytest.mark.parametrize("path", [None, "", "net", "net/dense", "net/Adam replaced at step 72", "replaced at step x"])
def test_other_paths_give_none(path: str | None) -> None:
    assert former_name(path) is None
