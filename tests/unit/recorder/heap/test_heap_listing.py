"""Listing Python's objects finds those of the given classes and does not disturb other threads."""

import gc
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from tb_memplugin.recorder.heap.heap_listing import objects_of

ROOT = pathlib.Path(__file__).parents[4]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
AUDITED = '''
"""Prints what ran while `objects_of` referred to a tuple, then in how many cases another thread could not fill one."""
import gc, sys, threading, time
from tb_memplugin.recorder.heap.heap_listing import objects_of

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
    assert [path.name for path in modules] == ["heap_listing.py"]
