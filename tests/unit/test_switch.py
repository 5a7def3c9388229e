"""What counts as turned off."""

import pytest

from tb_memplugin.cpu_allocator import prefer_bfc
from tb_memplugin.switch import SWITCH, is_off


@pytest.mark.parametrize(
    ("value", "off"), [("0", True), (" 0 ", True), ("1", False), ("", False), ("false", False), (None, False)]
)
def test_only_a_zero_turns_off(value: str | None, off: bool) -> None:
    assert is_off({} if value is None else {SWITCH: value}) is off


def test_the_import_then_asks_for_no_allocator() -> None:
    environment = {SWITCH: "0", "CUDA_VISIBLE_DEVICES": ""}
    prefer_bfc(environment)
    assert environment == {SWITCH: "0", "CUDA_VISIBLE_DEVICES": ""}
