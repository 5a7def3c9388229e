"""An object among a frame's variables: it ends with the frame, however the function ends."""

import sys
from collections.abc import Callable

import pytest

from tb_memplugin.recorder.observe.frames import keep_with, running_functions


class Marker:
    def __init__(self, gone: Callable[[], None]) -> None:
        self.gone = gone

    def __del__(self) -> None:
        self.gone()


def run(gone: list[int], error: type[BaseException] | None) -> list[int]:
    data = [1, 2, 3]
    keep_with(sys._getframe(), Marker(lambda: gone.append(1)))
    # Reading the frame's variables, as the search for holders does, does not show the marker and keeps it.
    variables = next(own for frame, own in running_functions_of_tests() if frame is sys._getframe())
    assert set(variables) <= {"gone", "error", "data"} and gone == []
    if error is not None:
        raise error
    return data


def running_functions_of_tests():  # type: ignore[no-untyped-def]
    return list(running_functions())


def test_it_ends_as_the_function_returns() -> None:
    gone: list[int] = []
    assert run(gone, None) == [1, 2, 3]
    assert gone == [1]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_it_ends_with_the_traceback_of_an_exception(error: type[BaseException]) -> None:
    gone: list[int] = []
    try:
        run(gone, error)
    except BaseException:
        assert gone == []
    assert gone == [1]
