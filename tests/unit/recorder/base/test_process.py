"""The recorder's objects and Python's garbage collector: when it runs, and what the program has set."""

import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tb_memplugin.recorder.base import isolation as process
from tb_memplugin.recorder.base import uncounted

kept: list[Any] = []


@uncounted
def keep(number: int) -> None:
    kept.extend([[index] for index in range(number)])


@uncounted
def drop() -> None:
    kept.clear()


@pytest.fixture(autouse=True)
def collections() -> Iterator[list[int]]:
    """Generations of the collections during a test."""
    found: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            found.append(info["generation"])

    kept.clear()
    threshold = gc.get_threshold()
    keep(0)
    gc.collect()  # fills the stock
    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)
    gc.set_threshold(*threshold)
    assert process._collector._running == []


def test_objects_left_behind_and_freed_do_not_count(collections: list[int]) -> None:
    left = 5 * gc.get_threshold()[0] // 7
    for _ in range(3):
        before = gc.get_count()[0]
        keep(left)
        assert abs(gc.get_count()[0] - before) < 10
        before = gc.get_count()[0]
        drop()
        assert abs(gc.get_count()[0] - before) < 10
    assert not collections


def test_no_collection_starts_meanwhile_and_more_than_the_stock_costs_one(collections: list[int]) -> None:
    keep(process.STOCK + 3 * gc.get_threshold()[0])
    assert len([[] for _ in range(10)]) == 10 and len(collections) == 1
    # AND a collection renews the stock
    assert len(process._collector._stock) == process.STOCK


@pytest.mark.parametrize("own", [0, 123])
def test_the_programs_own_setting_stays(own: int) -> None:
    # GIVEN a program that sets it before, THEN it is restored, and 0, which means never, is left alone
    gc.set_threshold(own)
    seen = []
    uncounted(lambda: seen.append(gc.get_threshold()[0]))()
    assert seen == [own + process.MARGIN if own else 0] and gc.get_threshold()[0] == own
    # AND one that sets it meanwhile
    uncounted(lambda: gc.set_threshold(own + 1))()
    assert gc.get_threshold()[0] == own + 1
    # AND a collector that is off stays off
    gc.disable()
    try:
        keep(5)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_threads_restore_the_threshold_when_the_last_one_leaves() -> None:
    threshold = gc.get_threshold()
    inside, leave = threading.Event(), threading.Event()

    @uncounted
    def wait() -> None:
        inside.set()
        leave.wait(10)

    thread = threading.Thread(target=wait)
    thread.start()
    inside.wait(10)
    keep(5)
    assert gc.get_threshold()[0] == threshold[0] + process.MARGIN
    leave.set()
    thread.join()
    assert gc.get_threshold() == threshold


class Held:
    def __init__(self) -> None:
        self.abandoned = 0

    def _abandon(self) -> None:
        self.abandoned += 1


@pytest.fixture(autouse=True)
def own_items(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items of other tests are kept out: they are recorders of a process with many threads."""
    monkeypatch.setattr(process, "_inherited", type(process._inherited)())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_abandons_each_item_once() -> None:
    first, second = Held(), Held()
    for item in (first, second, second):
        process.abandon_in_child(item)
    child = os.fork()
    if not child:
        os._exit(10 * first.abandoned + second.abandoned)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 11
    # AND the parent keeps them
    assert (first.abandoned, second.abandoned) == (0, 0)
    # AND one that is gone is not kept
    del second, item
    gc.collect()
    assert len(process._inherited) == 1
    # AND in a child of the child they are not abandoned again
    for _ in range(2):
        process._abandon_all()
    assert first.abandoned == 1
