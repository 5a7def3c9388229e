"""Listing Python's objects finds those of the given classes and does not disturb other threads."""

import gc
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from tb_memplugin.recorder.observe.heap.heap_listing import objects_of


class _Wanted:
    pass


class _Other(_Wanted):
    pass


def test_it_finds_objects_of_the_classes_and_no_others() -> None:
    wanted, other, lists = [_Wanted() for _ in range(200)], [_Other() for _ in range(3)], [[]]
    assert {id(item) for item in objects_of({_Wanted})} == {id(item) for item in wanted}
    assert {id(item) for item in objects_of({_Wanted, _Other})} == {id(item) for item in wanted + other}
    assert any(item is lists for item in objects_of([list]))


def test_it_lists_one_generation() -> None:
    old = _Wanted()
    gc.collect()
    young = _Wanted()
    assert objects_of({_Wanted}, 0) == [young]
    assert objects_of({_Wanted}, 2) == [old]


def test_it_keeps_no_object_alive() -> None:
    items = [_Wanted() for _ in range(5)]
    references = [sys.getrefcount(item) for item in items]
    assert objects_of({_Other}) == []
    assert [sys.getrefcount(item) for item in items] == references


def test_tuples_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot list tuples"):
        objects_of({tuple})


def test_threads_that_fill_tuples_do_not_fail() -> None:
    """`tuple(generator)` fails with SystemError if another thread refers to the tuple while it grows."""
    failures: list[BaseException] = []
    filled = [0]
    stop = threading.Event()

    def slowly() -> Iterator[int]:
        for number in range(25):
            if number % 5 == 0:
                time.sleep(0)  # lets another thread run, as any instruction may
            yield number

    def fill() -> None:
        try:
            while not stop.is_set():
                assert len(tuple(slowly())) == 25
                filled[0] += 1
        except BaseException as error:
            failures.append(error)

    gc.freeze()  # lists without the modules of other tests, so that more of them meet a tuple
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=fill) for _ in range(3)]
    try:
        for thread in threads:
            thread.start()
        walks = 0
        while not failures and (filled[0] < 1000 or walks < 200):
            objects_of({_Wanted})
            walks += 1
    finally:
        gc.unfreeze()
        stop.set()
        sys.setswitchinterval(interval)
        for thread in threads:
            thread.join()
    assert failures == []
