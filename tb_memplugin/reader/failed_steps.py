"""The breakdown of a step that ran out of memory: the ledger of its failed allocation."""

from collections.abc import Iterable, Sequence

from tb_memplugin.model import Oom, SavedRow, Snapshot, pool_of


def with_failed_steps(snapshots: Sequence[Snapshot], ooms: Iterable[Oom]) -> tuple[Snapshot, ...]:
    """The snapshots of a session, and one of each step with a failed allocation whose owners are known.

    Every view, the terminal and reports take a step's breakdown from its snapshot, so that they agree with the
    post-mortem. The last failure of a step on a device counts; it replaces a trace of the same step.
    """
    failed = {
        (oom.step, oom.phase, oom.device): snapshot
        for oom in sorted(ooms, key=lambda oom: oom.wall_time)
        if (snapshot := _at_failure(oom)) is not None
    }
    traced = [one for one in snapshots if (one.step, one.phase, one.device) not in failed]
    return (*traced, *failed.values())


def _at_failure(oom: Oom) -> Snapshot | None:
    if oom.step is None or oom.phase is None or oom.in_use_bytes is None or not oom.ledger:
        return None
    pool = pool_of(oom.pool_bytes, oom.in_use_bytes, oom.largest_free_bytes)
    saved: dict[str | None, int] = {}
    for row in oom.ledger:
        if row.category == "activations":
            saved[row.layer] = saved.get(row.layer, 0) + row.bytes
    return Snapshot(
        step=oom.step,
        phase=oom.phase,
        device=oom.device,
        wall_time=oom.wall_time,
        mode=None,
        in_use_bytes=oom.in_use_bytes,
        pool_bytes=oom.pool_bytes,
        largest_free_bytes=oom.largest_free_bytes,
        capacity_bytes=oom.capacity_bytes,
        fragmentation=None if pool is None else pool.fragmentation,
        rounding_bytes=sum(row.bytes for row in oom.ledger if row.category == "rounding"),
        ledger=oom.ledger,
        saved_for_backward=tuple(
            SavedRow(layer, size) for layer, size in sorted(saved.items(), key=lambda entry: -entry[1])
        ),
        not_available=oom.not_available,
        batch_size=oom.batch_size,
        at_failure=True,
    )
