"""The path to several tensors names what their paths share."""

import pytest

from tb_memplugin.schema import common_path

ROOT = "module __main__ › "


@pytest.mark.parametrize(
    ("paths", "common"),
    [
        ([], None),
        (["history (list) › [3]"], "history (list) › [3]"),
        (["history (list) › [3]"] * 2, "history (list) › [3]"),
        (["history (list) › [3]", "history (list) › [4]"], "history (list) › […]"),
        (['h (list) › [3] (dict) › "loss"', 'h (list) › [4] (dict) › "loss"'], 'h (list) › […] (dict) › "loss"'),
        (['h (dict) › "a" (list) › [0]', 'h (dict) › "b" (list) › [0]'], "h (dict) › … (list) › [0]"),
        (["a (A) › kept", "a (B) › kept"], "a › kept"),
        (["a (A) › kept", "b (B) › kept"], "… › kept"),
        (["h (list) › [0]", "h (list) › [1] (list) › [0]"], "h (list) › …"),
        (["h (list) › [0]", "other (list) › [1] (list) › [0]"], "…"),
    ],
)
def test_what_differs_is_left_out(paths: list[str], common: str | None) -> None:
    assert common_path([ROOT + path for path in paths]) == (None if common is None else ROOT + common)
