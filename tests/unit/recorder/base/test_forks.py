"""What a recorder holds is let go of in a forked child, and only there."""

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tb_memplugin.recorder.base import forks


class Held:
    def __init__(self) -> None:
        self.abandoned = 0

    def _abandon(self) -> None:
        self.abandoned += 1


@pytest.fixture(autouse=True)
def own_items(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Items of other tests are kept out: they are recorders of a process with many threads."""
    monkeypatch.setattr(forks, "_inherited", type(forks._inherited)())
    yield


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_abandons_each_item_once() -> None:
    first, second = Held(), Held()
    for item in (first, second, second):
        forks.abandon_in_child(item)
    child = os.fork()
    if not child:
        os._exit(10 * first.abandoned + second.abandoned)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 11
    # AND the parent keeps them
    assert (first.abandoned, second.abandoned) == (0, 0)


def test_in_a_child_of_the_child_they_are_not_abandoned_again() -> None:
    item = Held()
    forks.abandon_in_child(item)
    for _ in range(2):  # as in a child and in one of its own
        forks._abandon_all()
    assert item.abandoned == 1


def test_an_item_that_is_gone_is_not_kept_for_a_child() -> None:
    item: Any = Held()
    forks.abandon_in_child(item)
    assert len(forks._inherited) == 1
    del item
    gc.collect()
    assert len(forks._inherited) == 0
