"""A fault of the recorder is reported once and does not reach training."""

import logging
from collections.abc import Callable

import pytest

from tb_memplugin.recorder.base.faults import Faults


def run(faults: Faults, part: str, action: Callable[[], None]) -> None:
    with faults.part(part) as runs:
        if runs:
            action()


def fail() -> None:
    raise OSError("no space\nleft")


def test_a_part_that_fails_is_reported_once_and_not_run_again(caplog: pytest.LogCaptureFixture) -> None:
    # GIVEN a part that fails and one that does not WHEN both run three times
    ran, noted = [], []
    faults = Faults(noted.append)
    with caplog.at_level(logging.WARNING, "tb_memplugin"):
        for _ in range(3):
            run(faults, "writing", lambda: ran.append("tried") or fail())
            run(faults, "sampling", lambda: ran.append("sampled"))
    # THEN there is one warning, on one line, and the other part went on
    assert [record.message for record in caplog.records] == [
        "writing stopped: OSError: no space left; training is not affected"
    ]
    assert noted == [caplog.records[0].message]
    assert ran == ["tried", "sampled", "sampled", "sampled"]
    assert faults.stopped("writing") and not faults.stopped("sampling")


def test_a_failing_report_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    tried = []

    def report(sentence: str) -> None:
        tried.append(sentence)
        raise OSError(sentence)

    faults = Faults(report)
    with caplog.at_level(logging.WARNING, "tb_memplugin"):
        run(faults, "writing", fail)
    assert tried == [record.message for record in caplog.records] and len(tried) == 1
    assert faults.stopped("writing")


def test_an_interrupt_is_not_a_fault() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Faults(), "anything", interrupt)


@pytest.mark.parametrize(
    ("sentence", "stored"),
    [
        ("No such file: '/data/runs/exp1/memory/x'", "No such file: '<path>'"),
        (r"cannot open C:\data\runs, stopped", "cannot open <path>, stopped"),
        ("layer vgg16/block1_conv1 on /device:CPU:0", "layer vgg16/block1_conv1 on /device:CPU:0"),
        ("0/0 is no share; 3/4 is", "0/0 is no share; 3/4 is"),
    ],
)
def test_the_stored_sentence_contains_no_path(sentence: str, stored: str) -> None:
    noted = []
    Faults(noted.append).warn(sentence)
    assert noted == [stored]
