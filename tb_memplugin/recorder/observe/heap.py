"""Lists Python objects by class without disturbing other threads."""

import gc
from collections.abc import Collection, Iterator
from itertools import chain, compress
from typing import Any


def objects_of(kinds: Collection[type], generation: int | None = None) -> list[Any]:
    """Objects of exactly these classes (no subclasses) that Python's garbage collector tracks.

    The collector also lists tuples that another thread is filling at this moment. `tuple(generator)` raises SystemError
    if something else refers to its tuple, so the collector's list must be gone before another thread can run. Therefore
    one call of C code gets the list, goes through it and drops it: the interpreter switches threads only between its
    own instructions. A loop or a comprehension would not do.

    Args:
        kinds: Classes, without `tuple`.
        generation: Generation of the collector, None for all.

    Raises:
        ValueError: `kinds` contains `tuple`.
    """
    if tuple in kinds:
        raise ValueError("objects_of cannot list tuples: another thread may be filling one. Pass other classes.")
    wanted = frozenset(map(id, kinds))
    objects: list[Any] = []
    # `extend` and `__delitem__` return None, which `filter` drops: these two iterators yield nothing.
    fill: Iterator[Any] = filter(None, map(objects.extend, map(gc.get_objects, (generation,))))
    empty: Iterator[Any] = filter(None, map(objects.__delitem__, (slice(None),)))
    is_wanted = map(wanted.__contains__, map(id, map(type, objects)))
    return list(compress(chain(fill, objects, empty), is_wanted))
