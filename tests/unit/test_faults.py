"""A fault of the recorder is reported once and goes no further."""

import logging

import pytest

from tb_memplugin.recorder.faults import Faults


def fail() -> None:
    raise OSError("no space\nleft")


def test_a_part_that_fails_is_reported_once_and_not_run_again(caplog: pytest.LogCaptureFixture) -> None:
    # GIVEN a part that fails and one that does not WHEN both run three times
    ran, noted = [], []
    faults = Faults(noted.append)
    with caplog.at_level(logging.WARNING, "tb_memplugin"):
        for _ in range(3):
            assert faults.run("writing", fail) is None
            assert faults.run("sampling", ran.append, 1) is None
    # THEN there is one warning, on one line, and the other part went on
    assert [record.message for record in caplog.records] == [
        "writing stopped: OSError: no space left; training is not affected"
    ]
    assert noted == [caplog.records[0].message]
    assert ran == [1, 1, 1]
    assert faults.stopped("writing") and not faults.stopped("sampling")


def test_a_report_that_fails_does_no_harm() -> None:
    def report(sentence: str) -> None:
        raise OSError(sentence)

    Faults(report).run("writing", fail)


def test_an_interrupt_is_not_a_fault() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Faults().run("anything", interrupt)


@pytest.mark.parametrize(
    ("sentence", "stored"),
    [
        ("No such file: '/home/ann/runs/exp1/memory/x'", "No such file: '<path>'"),
        (r"cannot open C:\Users\ann\runs, stopped", "cannot open <path>, stopped"),
        ("layer vgg16/block1_conv1 on /device:CPU:0", "layer vgg16/block1_conv1 on /device:CPU:0"),
        ("0/0 is no share; 3/4 is", "0/0 is no share; 3/4 is"),
    ],
)
def test_what_is_stored_of_a_fault_names_no_path(sentence: str, stored: str) -> None:
    noted = []
    Faults(noted.append).warn(sentence)
    assert noted == [stored]
