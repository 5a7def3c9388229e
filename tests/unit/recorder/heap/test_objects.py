"""Listing Python's objects, which does not disturb other threads, and those that only the garbage collector can
free."""

import gc
import os
import pathlib
import re
import shutil
import subprocess
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from tb_memplugin.recorder.heap import objects_of, unreachable

ROOT = pathlib.Path(__file__).parents[4]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
AUDITED = '''
"""Prints what ran while `objects_of` referred to a tuple, then in how many cases another thread could not fill one."""
import gc, importlib.util, sys, threading, time, types
for name in ("", ".recorder", ".recorder.base", ".recorder.devices", ".schema"):  # a Python without NumPy
    stub = sys.modules["tb_memplugin" + name] = types.ModuleType(name)
    stub.choose_devices = stub.memory_info = stub.format_bytes = stub.weakly = None
spec = importlib.util.spec_from_file_location("objects", "tb_memplugin/recorder/heap/objects.py")
spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
objects_of = module.objects_of

class Meta(type):
    def __hash__(cls): return look("__hash__") or 1
    def __eq__(cls, other): return look("__eq__") or cls is other
    def __instancecheck__(cls, item): return look("__instancecheck__")

class Wanted: pass

class Other(metaclass=Meta):
    __class__ = property(lambda self: look("__class__") or Other)
    def __getattribute__(self, name): return look(name) or object.__getattribute__(self, name)

def look(what):
    if sys.getrefcount(tracked) != references:
        ran.add(what)

tracked, ran = tuple([[]]), set()
references = sys.getrefcount(tracked)
items = [Wanted() for _ in range(10)], [Other() for _ in range(10)]
small = [tuple([None]) for _ in range(5000)]  # Python keeps none of this size to use again
sys.addaudithook(lambda event, arguments: look(event) or small.append(arguments))
gc.callbacks.append(lambda phase, _: look("a collection"))
thresholds = gc.get_threshold()
gc.set_threshold(1)
for _ in range(20):
    assert len(objects_of({Wanted})) == 10
gc.set_threshold(*thresholds)
print(sorted(ran))

def fill():
    while not stop.is_set():
        try:
            filled.append(len(tuple(number for number in range(20_000))))
        except SystemError:
            failed.append(None)

stop, filled, failed = threading.Event(), [], []
threads = [threading.Thread(target=fill) for _ in range(2)]
for thread in threads: thread.start()
end, listings = time.monotonic() + 2, 0
while time.monotonic() < end or not filled or listings < 5:
    assert len(objects_of({Wanted})) == 10
    listings += 1
stop.set()
for thread in threads: thread.join()
print(len(failed))
'''


class _Wanted:
    pass


class _Other(_Wanted):
    pass


def test_it_finds_objects_of_the_classes_and_no_others() -> None:
    wanted, other, lists = [_Wanted() for _ in range(200)], [_Other() for _ in range(3)], [[]]
    assert {id(item) for item in objects_of({_Wanted})} == {id(item) for item in wanted}
    assert {id(item) for item in objects_of({_Wanted, _Other})} == {id(item) for item in wanted + other}
    assert any(item is lists for item in objects_of([list]))


def test_it_lists_one_generation_and_keeps_no_object_alive() -> None:
    old = _Wanted()
    gc.collect()
    young = _Wanted()
    references = [sys.getrefcount(item) for item in (old, young)]
    assert objects_of({_Wanted}, 0) == [young] and objects_of({_Wanted}, 2) == [old]
    assert objects_of({_Other}) == []
    assert [sys.getrefcount(item) for item in (old, young)] == references
    with pytest.raises(ValueError, match="cannot list tuples"):
        objects_of({tuple})


def _python(version: str) -> str | None:
    """An interpreter of this version: this one, one on the path, or one of pyenv's."""
    if sys.version.startswith(f"{version}."):
        return sys.executable
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    found = [str(path) for path in pyenv.glob(f"versions/{version}.*/bin/python")]
    return found[0] if found else shutil.which(f"python{version}")


@pytest.mark.parametrize("version", PYTHONS)
def test_nothing_runs_while_it_refers_to_a_tuple(version: str) -> None:
    """No audit hook, no method of a class and no collection: other threads then fill their tuples undisturbed."""
    python = _python(version)
    if python is None:
        pytest.skip(f"no Python {version}")
    ended = subprocess.run([python, "-c", AUDITED], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stdout) == (0, "[]\n0\n"), ended.stderr


def test_no_other_module_lists_the_objects_of_other_threads() -> None:
    lists = re.compile(r"\bget_(objects|referrers)\b")
    modules = [path for path in (ROOT / "tb_memplugin").rglob("*.py") if lists.search(path.read_text())]
    assert [path.name for path in modules] == ["objects.py"]


class Item:
    """An object that may refer to others."""

    def __init__(self, *others: Any) -> None:
        self.others = list(others)


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def in_cycle(*others: Any) -> Item:
    item = Item(*others)
    item.others.append(item)
    return item


@pytest.mark.usefixtures("no_collection")
def test_an_object_in_a_cycle_and_what_only_it_refers_to_is_garbage_but_nothing_that_a_variable_leads_to() -> None:
    inner = Item()
    item = in_cycle(inner, [inner])
    keys = {id(item), id(inner)}
    reference = weakref.ref(item)
    del item, inner
    found = unreachable([reference()])
    assert keys <= found
    # AND nothing was collected, but the collector agrees
    assert reference() is not None
    gc.collect()
    assert reference() is None
    item = in_cycle()
    outer = Item(item)
    objects = [item, outer]
    assert not {id(item), id(outer)} & unreachable(objects)
    assert objects == []  # the list would keep them alive
    # AND neither is what is kept of an owner that is garbage
    handle = Item()
    owner = in_cycle(handle)
    keep, keys, reference = [handle], (id(owner), id(handle)), weakref.ref(owner)
    del owner, handle
    found = unreachable([reference()])
    assert [key in found for key in keys] == [True, False] and keep


def test_garbage_that_refers_to_an_object_is_found_where_it_is_looked_for(no_collection: None) -> None:
    def used_by_a_class() -> weakref.ref[Any]:
        item = Item()
        # A class is in cycles by itself, as Keras's of `compiled_metrics`.
        type("Metric", (), {"__qualname__": "used_by_a_class.<locals>.Metric", "update": lambda self: item})
        return weakref.ref(item)

    def used_in_a_cycle() -> weakref.ref[Any]:
        item = Item()
        in_cycle(item)
        return weakref.ref(item)

    reference, other = used_by_a_class(), used_in_a_cycle()
    assert unreachable([reference()]) >= {id(reference())}
    assert [id(other()) in unreachable([other()], levels) for levels in (0, 2)] == [False, True]


def test_nobody_elses_code_runs(no_collection: None) -> None:
    ran: list[str] = []

    class Strange:
        __eq__ = __hash__ = __del__ = lambda self, *others: ran.append("a method")  # type: ignore[assignment]

    strange = Strange()
    strange.me = strange  # type: ignore[attr-defined]
    reference, key = weakref.ref(strange), id(strange)
    del strange
    found = unreachable([reference()], levels=1)
    assert key in found and ran == []
