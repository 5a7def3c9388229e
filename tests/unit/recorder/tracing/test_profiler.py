"""The level of TensorFlow's log is raised while a block runs, and is afterwards what it was."""

import pytest

from tb_memplugin.recorder.devices import memory_maps as framework
from tb_memplugin.recorder.tracing import profiler
from tb_memplugin.recorder.tracing.profiler import QuietLog

INFO, WARNING, ERROR = 0, 1, 2


class Log(QuietLog):
    """With a level of its own in place of TensorFlow's."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self.level = level

    def _level(self) -> int:
        return self.level

    def _set(self, level: int) -> None:
        self.level = level


@pytest.mark.parametrize(("before", "inside"), [(INFO, WARNING), (WARNING, WARNING), (ERROR, ERROR)])
def test_a_block_logs_warnings_and_nothing_that_the_user_turned_off(before: int, inside: int) -> None:
    log = Log(before)
    with pytest.raises(ValueError), log.warnings_only():
        assert log.level == inside
        raise ValueError
    assert log.level == before


def test_blocks_of_two_threads_may_overlap() -> None:
    log = Log(INFO)
    first, second = log.warnings_only(), log.warnings_only()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert log.level == WARNING
    second.__exit__(None, None, None)
    assert log.level == INFO
    # AND a forked child logs as before
    with log.warnings_only():
        log._abandon()
        assert log.level == INFO
        log._blocks = 1  # the block ends in the parent only
    # AND a level that the program sets meanwhile stays
    with log.warnings_only():
        log.level = ERROR
    assert log.level == ERROR


def test_with_the_switch_no_function_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(framework.SWITCH, "0")
    profiler._functions.cache_clear()
    assert QuietLog()._level() == WARNING
    profiler._functions.cache_clear()
