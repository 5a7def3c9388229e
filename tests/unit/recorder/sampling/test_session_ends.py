"""What sessions of a process are told of earlier ones."""

from tb_memplugin.recorder.sampling import session_ends
from tb_memplugin.recorder.sampling.session_ends import SessionEnds


def test_a_session_is_told_the_ends_of_those_before_it_in_order() -> None:
    ends = SessionEnds()
    first, second, third = (ends.begin() for _ in range(3))
    ends.note(second, {"CPU:0": 20})
    ends.note(first, {"CPU:0": 5})
    ends.note(first, {"CPU:0": 10, "GPU:0": 1})  # it went on
    assert ends.earlier(first) == []
    assert ends.earlier(third) == [
        [("earlier_sessions", "CPU:0", 1, 10, None), ("earlier_sessions", "GPU:0", 1, 1, None)],
        [("earlier_sessions", "CPU:0", 2, 20, None)],
    ]


def test_of_many_sessions_some_are_told_with_the_first_and_the_last() -> None:
    ends = SessionEnds()
    for _ in range(1000):
        ends.note(ends.begin(), {"CPU:0": 1})
    numbers = [values[0][2] for values in ends.earlier(ends.begin())]
    assert len(numbers) == session_ends.MAX_SESSIONS and numbers == sorted(set(numbers))
    assert (numbers[0], numbers[-1]) == (1, 1000)
