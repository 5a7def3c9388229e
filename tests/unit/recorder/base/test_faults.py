"""A fault of the recorder is reported once and does not reach training."""

import logging

import pytest

from tb_memplugin.recorder.base import Faults
from tb_memplugin.recorder.base.isolation import MAX_STEP_NOTES


def fail() -> None:
    raise OSError("no space\nleft")


def test_a_part_that_fails_is_reported_once_and_not_run_again(caplog: pytest.LogCaptureFixture) -> None:
    # GIVEN a part that fails and one that does not WHEN both run three times
    ran, noted = [], []
    faults = Faults(noted.append)
    with caplog.at_level(logging.WARNING, "tb_memplugin"):
        for _ in range(3):
            faults.run("writing", lambda: ran.append("tried") or fail())
            faults.run("sampling", lambda: ran.append("sampled"))
    # THEN there is one warning, on one line, and the other part went on
    assert [record.message for record in caplog.records] == [
        "writing stopped: OSError: no space left; training is not affected"
    ]
    assert noted == [caplog.records[0].message]
    assert ran == ["tried", "sampled", "sampled", "sampled"]
    assert faults.stopped("writing") and not faults.stopped("sampling")


def test_a_fault_in_one_step_costs_that_step(caplog: pytest.LogCaptureFixture) -> None:
    # GIVEN a part that fails in steps 2, 3 and 5, so never three times in a row
    ran: list[int] = []
    noted: list[str] = []
    faults = Faults(noted.append)
    with caplog.at_level(logging.DEBUG, "tb_memplugin"):
        for step in range(1, 7):
            faults.run_step("step timelines", step, fail if step in (2, 3, 5) else lambda step=step: ran.append(step))
    # THEN the other steps are analyzed, and each fault is noted with its traceback at debug level
    assert ran == [1, 4, 6] and not faults.stopped("step timelines")
    assert noted == [
        f"step timelines failed for step {step}: OSError: no space left; training is not affected" for step in (2, 3, 5)
    ]
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == noted
    assert sum(record.exc_info is not None for record in caplog.records if record.levelno == logging.DEBUG) == 3


def test_three_faults_in_a_row_stop_the_part_and_others_are_noted_a_few_times(caplog: pytest.LogCaptureFixture) -> None:
    ran: list[int] = []
    faults = Faults()
    for step in (1, 2, 3, 4):
        faults.run_step("step timelines", step, lambda step=step: ran.append(step) or fail())
    assert ran == [1, 2, 3] and faults.stopped("step timelines")
    assert len(caplog.records) == 3
    assert caplog.records[-1].message == "step timelines stopped: OSError: no space left; training is not affected"
    # AND others do not, however many they are
    caplog.clear()
    faults = Faults()
    for step in range(100):
        faults.run_step("step timelines", step, fail if step % 2 else lambda: None)
    assert len(caplog.records) == MAX_STEP_NOTES and not faults.stopped("step timelines")


def test_an_interrupt_is_not_a_fault() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Faults().run_step("anything", 1, interrupt)
    with pytest.raises(KeyboardInterrupt):
        Faults().run("anything", interrupt)


def test_a_failing_report_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    tried = []

    def report(sentence: str) -> None:
        tried.append(sentence)
        raise OSError(sentence)

    faults = Faults(report)
    with caplog.at_level(logging.WARNING, "tb_memplugin"):
        faults.run("writing", fail)
    assert tried == [record.message for record in caplog.records] and len(tried) == 1
    assert faults.stopped("writing")


@pytest.mark.parametrize(
    ("sentence", "stored"),
    [
        ("No such file: '/data/runs/exp1/memory/x'", "No such file: '<path>'"),
        ("[Errno 2] No such file: '/data/Jo Doe/runs, old/x' of 3/4", "[Errno 2] No such file: '<path>' of 3/4"),
        ("no '/device:CPU:0' and no '/device:CPU:1'", "no '/device:CPU:0' and no '/device:CPU:1'"),
        (r"cannot open C:\data\runs, stopped", "cannot open <path>, stopped"),
        ("layer vgg16/block1_conv1 on /device:CPU:0", "layer vgg16/block1_conv1 on /device:CPU:0"),
        ("0/0 is no share; 3/4 is", "0/0 is no share; 3/4 is"),
    ],
)
def test_the_stored_sentence_contains_no_path(sentence: str, stored: str) -> None:
    noted = []
    Faults(noted.append).warn(sentence)
    assert noted == [stored]
