"""Finds what nobody can reach any more but still exists, because it lies in reference cycles.

It decides as Python's garbage collector does: an object that is referred to from outside of a set of objects, by its
reference count, is reachable, and so is all that it refers to. What is left of the set is garbage. The set may be any:
with a smaller one, less is called garbage. Nothing is collected and no code of an object is run. Costs about 2.5 s of
processor time for a million objects.
"""

import collections
import gc
import operator
import sys
import types
from itertools import compress, repeat
from typing import Any

from tb_memplugin.recorder.heap.heap_listing import referrers_of

MAX_OBJECTS = 200_000
"""Most objects of a set; the set of a small Keras model that was trained has about 8,000."""
MAX_REFERRERS = 100
"""Most objects that refer to some others that are looked at."""
MAX_CONTAINERS = 3
"""Most containers between an object and the one that is named as its owner."""
_CONTAINERS = (dict, list, tuple, set, types.CellType)


def unreachable(objects: list[Any], levels: int = 2) -> set[int]:
    """Ids of objects that only Python's garbage collector can free, among these and what they refer to.

    The list is emptied, since a list that refers to an object keeps it alive; the caller must hold no other reference.
    Objects that refer to those which seem reachable are looked for `levels` times in all of the process; each time
    takes 0.1 s for a million objects.
    """
    return _search(objects, levels)[1]


def cycles_of(objects: list[Any], levels: int = 2) -> dict[int, str]:
    """Id of each object that `unreachable` would find to the class of what refers to it."""
    wanted = set(map(id, objects))
    members, garbage = _search(objects, levels)
    owners: dict[int, Any] = {}
    for key in garbage - wanted:
        for child in gc.get_referents(members[key]):
            owners.setdefault(id(child), members[key])
    names: dict[int, str] = {}
    for key in wanted & garbage & owners.keys():
        owner = owners[key]
        for _ in range(MAX_CONTAINERS):
            if isinstance(owner, _CONTAINERS):
                owner = owners.get(id(owner), owner)
        names[key] = type(owner).__name__
    return names


def _search(objects: list[Any], levels: int) -> tuple[dict[int, Any], set[int]]:
    """The set that was examined, and the ids of what is garbage in it."""
    # Classes made inside of functions are garbage cycles of their own when they are dropped. Keras makes one for each
    # model, whose methods refer to the model.
    members: dict[int, Any] = {}
    _extend(members, [*objects, *filter(_is_local, object.__subclasses__())])
    wanted = set(map(id, objects))
    objects.clear()
    garbage = _garbage(members)
    for _ in range(levels):
        found = _referrers([members[key] for key in wanted - garbage], members)
        if not found:
            break
        _extend(members, found)
        wanted.update(map(id, found))
        found.clear()
        garbage = _garbage(members)
    return members, garbage


def _extend(members: dict[int, Any], objects: list[Any]) -> None:
    """Add objects and what they refer to, but not what always exists: modules, their variables and classes."""
    fresh = dict(zip(map(id, objects), objects, strict=True))
    while fresh:
        members.update(fresh)
        if len(members) > MAX_OBJECTS:
            return
        found = gc.get_referents(*fresh.values())
        by_id = dict(zip(map(id, found), found, strict=True))
        fresh = {key: by_id[key] for key in by_id.keys() - members.keys() if _may_be_garbage(by_id[key])}


def _may_be_garbage(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return gc.is_tracked(value) and "__builtins__" not in value  # the variables of a module
    return gc.is_tracked(value) and kind is not types.ModuleType and (not issubclass(kind, type) or _is_local(value))


def _is_local(kind: type) -> bool:
    return "<locals>" in type.__dict__["__qualname__"].__get__(kind)


def _garbage(members: dict[int, Any]) -> set[int]:
    """Ids of the members that no reference from outside leads to.

    Other threads may run meanwhile, so counts are taken before and after the references between members: the larger one
    counts.
    """
    objects, ids = list(members.values()), list(members)
    own = next(map(sys.getrefcount, [object()])) + 1  # of `members` and `objects`
    before = list(map(sys.getrefcount, objects))
    inside = collections.Counter(map(id, gc.get_referents(*objects)))
    counts = map(max, before, list(map(sys.getrefcount, objects)))
    explained = map(operator.add, map(inside.__getitem__, ids), repeat(own))
    reachable = list(compress(objects, map(operator.gt, counts, explained)))
    garbage = set(ids).difference(map(id, reachable))
    while reachable:
        found = gc.get_referents(*reachable)
        by_id = dict(zip(map(id, found), found, strict=True))
        reached = by_id.keys() & garbage
        garbage -= reached
        reachable = [by_id[key] for key in reached]
    return garbage


def _referrers(objects: list[Any], members: dict[int, Any]) -> list[Any]:
    """Objects that refer to some of these, without members."""
    known = {id(objects), id(members), *members}
    del objects[MAX_REFERRERS:]
    found = referrers_of(objects) if objects else []
    others = [value for value in found if id(value) not in known]
    return [value for value in others if type(value) is not types.FrameType and _may_be_garbage(value)][:MAX_REFERRERS]
