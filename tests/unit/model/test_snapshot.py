"""The order of the categories: the same in Python and on the page, persistent memory below."""

import pathlib
import re

from tb_memplugin.model import CATEGORIES, PERSISTENT, stack_order

PAGE = pathlib.Path(__file__).parents[3] / "frontend/src/model/categories.ts"


def names_in_page(constant: str) -> tuple[str, ...]:
    found = re.search(rf"export const {constant}\b[^=]*= \[(.*?)\]", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return tuple(re.findall(r'"(\w+)"', found[1]))


def test_the_page_has_the_same_categories_in_the_same_order() -> None:
    assert names_in_page("CATEGORIES") == CATEGORIES
    assert names_in_page("PERSISTENT") == PERSISTENT


def test_persistent_memory_is_below_transient_memory() -> None:
    assert CATEGORIES[: len(PERSISTENT)] == PERSISTENT
    assert CATEGORIES[len(PERSISTENT) :] == (
        "inputs",
        "activations",
        "weight_gradients",
        "activation_gradients",
        "workspace",
        "rounding",
        "unattributed",
    )


def test_frozen_groups_are_below_trainable_ones_of_their_category() -> None:
    groups = [("rounding", None), ("weights", None), ("weights", True), ("optimizer_state", None), ("weights", False)]
    assert sorted(groups, key=lambda group: stack_order(*group)) == [
        ("weights", False),
        ("weights", True),
        ("weights", None),
        ("optimizer_state", None),
        ("rounding", None),
    ]
