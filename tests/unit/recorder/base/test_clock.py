"""Wall times of samples when the system's clock is set."""

import pytest

from tb_memplugin.recorder.base import clock


def test_a_clock_that_is_set_back_does_not_run_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a system clock that is set back by an hour, forward by a day, and back again
    system = iter([100.0, 101.0, -3499.0, -3498.0, 82902.0, 82903.0, -1.0, 0.0])
    monkeypatch.setattr(clock.time, "time", lambda: next(system))
    session = clock.Clock()
    # THEN steps keep their distances, except at the moment that it is set back
    assert [session.now() for _ in range(8)] == [100, 101, 101, 102, 86502, 86503, 86503, 86504]
