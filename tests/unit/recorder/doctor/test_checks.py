"""What the checks of `tb-memplugin doctor` find wrong."""

import dataclasses
from typing import Any

import pytest
from reading_cases import make_snapshot

from tb_memplugin.model import LedgerRow, Replay
from tb_memplugin.recorder.doctor import checks

MIB = 1 << 20


def snapshot(weights: int, unattributed: int, replayed: int = 5) -> Any:
    rows = (
        LedgerRow("dense", "weights", True, weights, 0),
        LedgerRow(None, "unattributed", None, unattributed, 0),
    )
    return dataclasses.replace(
        make_snapshot(0), ledger=rows, in_use_bytes=weights + unattributed, replay=Replay(replayed, 5, 7, 7, 0)
    )


def test_a_good_recording_has_nothing_wrong() -> None:
    assert checks._wrong([snapshot(100 * MIB, MIB)], 100 * MIB) == []


@pytest.mark.parametrize(
    ("snapshots", "said"),
    [
        ([], "no step was traced"),
        ([snapshot(99 * MIB, 0)], "weights are 103,809,024 B, Keras counts 104,857,600 B"),
        ([snapshot(100 * MIB, 100 * MIB)], "50.0% of the bytes in use have no owner"),
        ([snapshot(100 * MIB, 0, replayed=4)], "the replay reproduces 4 of 5 addresses"),
    ],
)
def test_a_wrong_recording_is_said(snapshots: Any, said: str) -> None:
    assert checks._wrong(snapshots, 100 * MIB) == [said]


def test_without_tensorflow_the_checks_of_viewing_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.importlib.util, "find_spec", lambda _: None)
    found = {check.name: check for check in checks.checks()}
    assert list(found) == ["switch", "TensorFlow", "TensorBoard"]
    assert not found["TensorFlow"].ok and "pip install 'tensorflow" in found["TensorFlow"].sentence


def test_the_switch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TB_MEMPLUGIN", "0")
    ok, sentence = checks._switch()
    assert not ok and "unset it" in sentence


def test_a_check_that_raises_is_a_line() -> None:
    def fail() -> tuple[bool, str]:
        raise OSError("no such device")

    assert checks._run("x", fail) == checks.Check("x", False, "OSError: no such device")
