"""Sizes of chunks that no event of the window speaks of: what is proven, what is believed, what is left open."""

import dataclasses
from typing import Any

import numpy as np

from tb_memplugin.analysis.categories import Classifier
from tb_memplugin.analysis.lifetimes import chunks
from tb_memplugin.analysis.window_start import Standing, WindowStart
from tb_memplugin.trace import AllocationTrace, Earlier, Intervals, KnownChunk, TensorFact, TraceFacts, VariableFact

NO_SPANS = Intervals(*(np.zeros(0, np.int64) for _ in range(4)))
MIB = 1 << 20
BASE = 1 << 30
"""Where the first variable lies."""


def trace(
    start_in_use: int, *allocations: tuple[int, int], freed: tuple[tuple[int, int], ...] = (), thread: str = "main"
) -> AllocationTrace:
    """Chunks (address, bytes) from before are freed; then allocations that stay."""
    address, size = (np.asarray(column, np.int64) for column in zip(*freed, *allocations, strict=True))
    count = len(address)
    zeros = np.zeros(count, np.int64)
    kind = np.where(np.arange(count) < len(freed), -1, 1)
    in_use = start_in_use + np.cumsum(kind * size)
    return AllocationTrace(
        device="GPU:0",
        allocator="GPU_0_bfc",
        time_ps=np.arange(count),
        kind=kind,
        address=address,
        allocated=size,
        requested=size,
        op=zeros,
        region=zeros,
        shape=zeros,
        dtype=zeros,
        in_use=in_use,
        available=(1 << 40) - in_use,
        fragmentation=np.full(count, np.nan),
        thread=zeros,
        strings=("op",),
        ops=NO_SPANS,
        calls=NO_SPANS,
        layers=NO_SPANS,
        threads=(thread,),
        start_in_use=start_in_use,
        missed=0,
    )


def variables(*places: tuple[str, bool, int, int]) -> tuple[VariableFact, ...]:
    """Weights (layer, trainable, address, bytes) that stand still."""
    return tuple(
        VariableFact(layer, "weights", layer, trainable, size, "GPU:0", address, address)
        for layer, trainable, address, size in places
    )


def facts(*places: tuple[str, bool, int, int], **more: Any) -> TraceFacts:
    """With one chunk of an earlier window, so that it counts as learned; it is far away and of no size to speak of."""
    of_earlier = {field.name for field in dataclasses.fields(Earlier)}
    known = {"chunks": {1 << 40: KnownChunk(256, 4, "other_state")}}
    earlier = Earlier(**known | {name: value for name, value in more.items() if name in of_earlier})
    own = {name: value for name, value in more.items() if name not in of_earlier}
    return TraceFacts(variables=variables(*places), earlier=earlier, **own)


def start(traced: AllocationTrace, known: TraceFacts) -> WindowStart:
    """What stood before the window."""
    return Classifier(traced, known, chunks(traced)).start()


def rows(traced: AllocationTrace, known: TraceFacts) -> list[Standing]:
    """Without the chunk of the earlier window."""
    return [row for row in start(traced, known).rows if row.address != 1 << 40]


def test_a_chunk_reaches_to_the_next_address_where_that_explains_the_bytes_in_use() -> None:
    found = rows(trace(3 * MIB + 256, (BASE + 3 * MIB, MIB)), facts(("a", True, BASE, 2 * MIB)))
    assert [(row.layer, row.allocated, row.requested) for row in found] == [("a", 3 * MIB, 2 * MIB)]


def test_an_address_seen_before_the_chunk_was_there_does_not_bound_it() -> None:
    seen = {"addresses": np.asarray([BASE + 2 * MIB]), "last_seen": np.asarray([4]), "since": {BASE: 5}}
    found = rows(trace(3 * MIB + 256, (BASE + 3 * MIB, MIB)), facts(("a", True, BASE, 2 * MIB), **seen))
    assert found[0].allocated == 3 * MIB
    held = {**seen, "since": {BASE: 4}}
    found = rows(trace(3 * MIB + 256, (BASE + 3 * MIB, MIB)), facts(("a", True, BASE, 2 * MIB), **held))
    assert found[0].allocated == 2 * MIB


def test_of_what_may_be_gone_and_what_may_lie_elsewhere_that_is_there_which_explains_more() -> None:
    # GIVEN on the CPU a constant that an earlier window left behind, and a tensor that Python holds
    constant, tensor = BASE + 4 * MIB, BASE + 8 * MIB
    known = TraceFacts(
        tensors=(TensorFact("inputs", MIB, tensor),),
        earlier=Earlier(
            chunks={constant: KnownChunk(MIB // 4, MIB // 4, "other_state")},
            addresses=np.asarray([tensor - 4096, tensor + MIB]),
            last_seen=np.zeros(2, np.int64),
        ),
    )

    def there(in_use: int) -> list[int]:
        traced = dataclasses.replace(trace(in_use, (16 * BASE, MIB)), device="CPU:0")
        return sorted(row.address for row in start(traced, known).rows)

    # THEN either is, as the bytes in use say
    assert there(MIB + 4096) == [tensor]
    assert there(MIB // 4 + 4096) == [constant]
    assert there(MIB + MIB // 4) == [constant, tensor]


def test_a_known_size_that_something_else_contradicts_is_not_believed() -> None:
    chunk = {BASE: KnownChunk(4 * MIB, 2 * MIB, "other_state"), 1 << 40: KnownChunk(256, 4, "other_state")}
    found = rows(trace(3 * MIB + 256, (BASE + 3 * MIB, MIB)), facts(("a", True, BASE, 2 * MIB), chunks=chunk))
    assert found[0].allocated == 3 * MIB


def test_what_no_address_bounds_is_of_the_kind_that_must_hold_it() -> None:
    # Up to 2 MiB and 4 MiB may lie behind the two frozen layers, 1 MiB behind the trainable one; 6 MiB do.
    places = (("a", False, BASE, 2 * MIB), ("b", False, 2 * BASE, 4 * MIB), ("c", True, 3 * BASE, MIB))
    found = rows(trace(13 * MIB + 256, (4 * BASE, MIB)), facts(*places))
    by_layer = {row.layer: row.allocated for row in found if row.address >= 0}
    spare = MIB - 3 * 256  # what the three could hold beyond 6 MiB
    assert by_layer == {"a": 4 * MIB - 256 - spare, "b": 8 * MIB - 256 - spare, "c": MIB + max(0, MIB - 256 - spare)}
    rest = {(row.category, row.trainable): row.allocated for row in found if row.address < 0}
    assert set(rest) == {("weights", False), ("weights", None)}
    assert sum(by_layer.values()) + sum(rest.values()) == 13 * MIB
    assert sum(row.allocated for row in found if row.trainable is False) == 12 * MIB - 512 - spare


def test_bounds_that_are_too_wide_together_give_each_what_the_others_cannot_hold() -> None:
    places = (("a", False, BASE, 2 * MIB), ("b", False, BASE + 4 * MIB - 256, 2 * MIB))
    traced = trace(7 * MIB + 256, (BASE + 8 * MIB - 512, MIB))
    found = rows(traced, facts(*places))
    assert sum(row.allocated for row in found) == 7 * MIB
    assert {row.layer for row in found} == {"a", "b", None}


def test_batches_in_waiting_are_told_from_remainders_by_what_was_there_before_the_first_was_asked_for() -> None:
    place = ("a", False, BASE, 8 * MIB)

    def row(quiet: int | None, left: int) -> int:
        traced = trace(8 * MIB + 256 + left, (4 * BASE, MIB), thread="tf_data_private")
        return sum(found.allocated for found in rows(traced, facts(place, quiet_bytes=quiet))) - 8 * MIB

    assert row(None, 4 * MIB) == 0  # could be batches
    assert row(4 * MIB, 4 * MIB) == 4 * MIB
    assert row(4 * MIB, 6 * MIB) == 4 * MIB  # two more, made since
    assert row(0, 4 * MIB) == 0


def test_what_the_next_addresses_explain_exactly_are_no_batches_in_waiting() -> None:
    # GIVEN weights that have moved since the first batch was asked for, with 4 MiB up to the next address
    known = facts(("a", True, BASE, 8 * MIB), quiet_bytes=0, since={BASE: 5})

    def size(left: int) -> int:
        traced = trace(8 * MIB + 256 + left, (BASE + 12 * MIB, MIB), thread="tf_data_private")
        return rows(traced, known)[0].allocated

    # THEN they are the weights' if just these bytes are there to explain, and batches if there are more or fewer
    assert size(4 * MIB) == 12 * MIB
    assert size(6 * MIB) == size(3 * MIB) == 8 * MIB


def test_what_is_proven_of_chunks_holds_for_as_long_as_they_stay() -> None:
    # GIVEN two frozen layers, one of which has 1 MiB more than it needs
    frozen = (("a", False, BASE, 2 * MIB), ("b", False, 2 * BASE, 2 * MIB))
    early = trace(5 * MIB + 256, (4 * BASE, MIB))
    found = start(early, facts(*frozen, window=3))
    assert [(row.trainable, row.allocated) for row in found.rows if row.address < 0] == [(False, MIB)]
    # WHEN a trainable layer of unknown size has come
    later = trace(9 * MIB + 256, (4 * BASE, MIB))
    places = (*frozen, ("c", True, 3 * BASE, 4 * MIB))

    def kinds(since: int) -> list[bool | None]:
        more = {"window": 7, "remainders": found.remainders, "since": {BASE: since, 2 * BASE: 1}}
        return [row.trainable for row in rows(later, facts(*places, **more)) if row.address < 0]

    # THEN the MiB is still the frozen ones', unless one of them has moved
    assert kinds(3) == [False]
    assert kinds(4) == [None]


def test_what_is_only_known_to_be_of_weights_is_remembered_as_that() -> None:
    # GIVEN a frozen and a trainable layer, of which it is not known which has 1 MiB more than it needs
    both = (("a", False, BASE, 2 * MIB), ("c", True, 2 * BASE, 2 * MIB))
    early = trace(5 * MIB + 256, (4 * BASE, MIB))
    found = start(early, facts(*both, window=3))
    of_both = [("weights", None, MIB)]
    assert [(row.category, row.trainable, row.allocated) for row in found.rows if row.address < 0] == of_both
    # WHEN optimizer slots of unknown size have come
    later = trace(9 * MIB + 256, (4 * BASE, MIB))
    slot = VariableFact("slot", "optimizer_state", "c", True, 4 * MIB, "GPU:0", 3 * BASE, 3 * BASE)
    known = facts(*both, window=7, remainders=found.remainders)
    again = rows(later, dataclasses.replace(known, variables=(*known.variables, slot)))
    # THEN it is still the weights'
    assert [(row.category, row.trainable, row.allocated) for row in again if row.address < 0] == of_both


def test_what_was_proven_of_several_is_told_more_closely_as_bounds_come_to_light() -> None:
    # GIVEN a frozen and a trainable layer, one of which has 1 MiB more than it needs
    both = (("a", False, BASE, 2 * MIB), ("c", True, 2 * BASE, 2 * MIB))
    early = trace(5 * MIB + 256, (4 * BASE, MIB))
    proven = start(early, facts(*both, window=3)).remainders

    # WHEN a later window allocates right behind the trainable one, or 512 KiB behind it
    def sizes(gap: int) -> list[tuple[str | None, bool | None, int]]:
        later = trace(5 * MIB + 256, (2 * BASE + 2 * MIB + gap, MIB))
        found = rows(later, facts(*both, window=7, remainders=proven))
        return [(row.layer, row.trainable, row.allocated) for row in found]

    # THEN it is the frozen one's, or it is that of both, each at least what the other cannot have
    assert sizes(0) == [("a", False, 3 * MIB), ("c", True, 2 * MIB)]
    half = MIB // 2
    assert sizes(half) == [("a", False, 2 * MIB + half), ("c", True, 2 * MIB), (None, None, half)]


def test_how_large_a_chunk_was_is_known_when_it_is_freed() -> None:
    # GIVEN two trainable layers, of which it is not known which has 1 MiB more than it needs
    both = (("a", True, BASE, 2 * MIB), ("b", True, 2 * BASE, 2 * MIB))
    proven = start(trace(5 * MIB + 256, (4 * BASE, MIB)), facts(*both, window=3)).remainders
    # WHEN a later window frees the chunk of one, while a frozen layer of unknown size is there
    places = (*both, ("c", False, 3 * BASE, 4 * MIB))

    def sizes(of_b: int) -> dict[str | None, int]:
        later = trace(9 * MIB + 256, (4 * BASE, MIB), freed=((2 * BASE, of_b),))
        found = rows(later, facts(*places, window=7, remainders=proven))
        return {row.layer: row.allocated for row in found}

    # THEN the other one has what that had not
    assert sizes(2 * MIB) == {"a": 3 * MIB, "c": 4 * MIB}
    assert sizes(3 * MIB) == {"a": 2 * MIB, "c": 4 * MIB}


def test_what_is_proven_of_a_chunk_by_itself_holds_although_others_move() -> None:
    # GIVEN a frozen layer with 1 MiB up to the next address, and one with 512 KiB more than it needs
    early = trace(5 * MIB + MIB // 2 + 256, (BASE + 3 * MIB, MIB))
    found = start(early, facts(("a", False, BASE, 2 * MIB), ("b", False, 2 * BASE, 2 * MIB), window=3))
    assert {row.layer: row.allocated for row in found.rows if row.layer} == {"a": 3 * MIB, "b": 2 * MIB + MIB // 2}
    # WHEN the second one has moved, and a trainable one has come
    moved = (("a", False, BASE, 2 * MIB), ("b", False, 5 * BASE, 2 * MIB), ("c", True, 3 * BASE, 4 * MIB))
    known = facts(*moved, window=7, remainders=found.remainders, since={BASE: 1, 5 * BASE: 5, 3 * BASE: 5})
    later = rows(trace(9 * MIB + MIB // 2 + 256, (4 * BASE, MIB)), known)
    # THEN the first one's is known as before, and of the others that weights have it
    assert next(row.allocated for row in later if row.layer == "a") == 3 * MIB
    assert [(row.trainable, row.allocated) for row in later if row.address < 0] == [(None, MIB // 2)]


def test_what_lies_behind_moved_weights_is_no_batch_where_it_explains_all_that_is_not_proven() -> None:
    # GIVEN a frozen layer with 1 MiB more than it needs, so before the first batch was asked for
    proven = start(trace(3 * MIB + 256, (4 * BASE, MIB)), facts(("a", False, BASE, 2 * MIB), window=3)).remainders
    # WHEN a trainable one has moved since to where 1 MiB lies up to the next address, a batch
    places = (("a", False, BASE, 2 * MIB), ("c", True, 2 * BASE, 4 * MIB))
    known = facts(*places, window=7, remainders=proven, quiet_bytes=MIB, since={BASE: 1, 2 * BASE: 5})

    def size(left: int) -> int:
        later = trace(7 * MIB + 256 + left, (2 * BASE + 5 * MIB, MIB // 4), thread="tf_data_private")
        return next(row.allocated for row in rows(later, known) if row.layer == "c")

    # THEN that is its own if the bytes in use are just so many, whatever was so before
    assert size(MIB) == size(MIB + 4096) == 5 * MIB
    assert size(MIB + MIB // 2) == 4 * MIB
