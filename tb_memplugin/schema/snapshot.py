"""The snapshot of one traced step, the ledger and the pool at its peak; and sums of ledgers.

In every row, before and after rounding is split off, `rounding_bytes` is the part of `bytes` that
was not requested. After the split it is 0, or all bytes of a row of category ``rounding``; if it is
unknown, the row has allocated bytes.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np

from tb_memplugin.schema.fields import (
    MAX_BYTES,
    Bounds,
    Integers,
    Mode,
    Most,
    Name,
    NotStored,
    Phase,
    Share,
    Size,
    Step,
    fields_of,
)


@dataclasses.dataclass(frozen=True)
class Pool:
    """The memory that the allocator has taken from the device; the largest free chunk is None if
    unknown."""

    pool_bytes: int
    in_use_bytes: int
    largest_free_bytes: int | None

    @property
    def free_bytes(self) -> int:
        return self.pool_bytes - self.in_use_bytes

    @property
    def other_free_bytes(self) -> int | None:
        """Free bytes outside the largest free chunk; None if unknown."""
        return (
            None if self.largest_free_bytes is None else self.free_bytes - self.largest_free_bytes
        )

    @property
    def fragmentation(self) -> float | None:
        """Share of the free bytes outside the largest free chunk; None if that is unknown, or if
        nothing is free."""
        other = self.other_free_bytes
        return None if other is None or not self.free_bytes else other / self.free_bytes


def pool_of(
    pool_bytes: int | None, in_use_bytes: int | None, largest_free_bytes: int | None
) -> Pool | None:
    """The pool with these figures, None if they are unknown or more is in use than there is.

    A largest free chunk of more than the free bytes counts as unknown."""
    if pool_bytes is None or in_use_bytes is None or pool_bytes < in_use_bytes:
        return None
    if largest_free_bytes is not None and largest_free_bytes > pool_bytes - in_use_bytes:
        largest_free_bytes = None
    return Pool(pool_bytes, in_use_bytes, largest_free_bytes)


Category: TypeAlias = Literal[
    "weights",
    "optimizer_state",
    "other_state",
    "held_tensors",
    "inputs",
    "activations",
    "weight_gradients",
    "activation_gradients",
    "workspace",
    "communication",
    "rounding",
    "unattributed",
]
CATEGORIES: tuple[Category, ...] = get_args(Category)
"""Every allocated byte has exactly one category. The order is that of the stack: persistent memory
at the bottom, transient memory above it."""

PERSISTENT: tuple[Category, ...] = ("weights", "optimizer_state", "other_state", "held_tensors")
"""Categories that outlive a step: the lower part of the stack."""

GRADIENTS: tuple[Category, ...] = ("activation_gradients", "weight_gradients")
"""Categories that only exist from the backward pass on."""

RESULTS: tuple[Category, ...] = ("activations", "workspace")
"""Categories of the results of a layer's ops."""

OF_PASSES: tuple[Category, ...] = (*RESULTS, "activation_gradients")
"""Categories of what the forward and the backward pass make of a batch."""


def stack_order(category: Category, trainable: bool | None) -> tuple[int, int]:
    """Sort key of a group: by category from the bottom of the stack, frozen before trainable before
    unknown."""
    return CATEGORIES.index(category), 2 if trainable is None else int(trainable)


@dataclasses.dataclass(frozen=True)
class LedgerRow:
    """Bytes of one owner at one instant.

    Attributes:
        layer: Layer path; null if not tied to a layer.
        category: Category; ``rounding`` holds allocated − requested bytes and keeps the owner's
            layer and trainability.
        trainable: Whether the layer's weights are trainable; null if not applicable, or unknown.
        bytes: Requested bytes, or rounding; allocated if the request is unknown. The rows sum to
            the bytes in use.
        rounding_bytes: Part of `bytes` that was not requested: 0, or all bytes of category
            ``rounding``."""

    layer: str | None
    category: Category
    trainable: bool | None
    bytes: Size
    rounding_bytes: Size | None


@dataclasses.dataclass(frozen=True)
class SavedRow:
    """A layer's forward results that are saved for the backward pass, at the end of the forward
    pass.

    Attributes:
        layer: Layer path; null if not tied to a layer.
        bytes: Their requested bytes."""

    layer: str | None
    bytes: Size


@dataclasses.dataclass(frozen=True)
class Replay:
    """How much of a traced step its replay reproduced, from the memory map at the start by the
    allocator's rules.

    Attributes:
        addresses: Allocations that got the address that the allocator chose.
        of_addresses: All allocations.
        chunks: Chunks of the memory map at the step's end that the replay ends with.
        of_chunks: All chunks of that map.
        peak_bytes: The replay's peak of allocated bytes."""

    addresses: Size
    of_addresses: Size
    chunks: Size
    of_chunks: Size
    peak_bytes: Size

    def faults(self) -> Iterator[str]:
        if self.addresses > self.of_addresses or self.chunks > self.of_chunks:
            yield "a replay reproduced more addresses or chunks than were recorded"


MAX_HELD_GROUPS = 10_000
"""Most groups of held tensors in a snapshot: the largest are kept."""
DATA_SET = "data set"
"""Holder of the tensors of a data set that lies on the device as a whole."""
MADE_DENSE = ", made dense"
"""End of the holder of a dense gradient that was made of a sparse one."""


@dataclasses.dataclass(frozen=True)
class HeldTensorGroup:
    """Tensors of one shape and dtype that one holder keeps: a Python object, a function, a data set
    or an optimizer.

    Attributes:
        shape: Shape of each tensor.
        dtype: Dtype of each tensor.
        count: Number of tensors.
        bytes: Requested bytes of all of them.
        held_by: What holds them, e.g. "list `history` in module __main__", "constant of function
            `step`", "data set", "variable `buffer`" or "sparse gradient of layer net/table, made
            dense".
        line: The Python line that made most of those that the step itself made, such as
            ``train.py:42``.
        retaining_path: References from a module or a running function to them, with "…" for those
            that differ, e.g. ``module __main__ › history (list) › […] (dict) › "loss"``.
        category: Their category in the ledger."""

    shape: Annotated[tuple[int, ...], Bounds(0, MAX_BYTES)]
    dtype: str
    count: Size
    bytes: Size
    held_by: str | None
    line: str | None = None
    retaining_path: str | None = None
    category: Category = "held_tensors"


MAX_TENSOR_GROUPS = 200
"""Most groups of tensors in a snapshot or a post-mortem: the largest are kept."""


@dataclasses.dataclass(frozen=True)
class TensorGroup:
    """Tensors of one owner with one shape and dtype; `bytes` are the requested bytes of all of
    them."""

    layer: str | None
    category: Category
    shape: Annotated[tuple[int, ...], Bounds(0, MAX_BYTES)]
    dtype: str
    count: Size
    bytes: Size


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The breakdown of one step on one device: of a traced step at its peak, or of a failed step at
    its failure.

    Attributes:
        step: Training step.
        phase: Its phase.
        device: Its device.
        wall_time: Seconds since the epoch.
        batch_size: Examples in the step's batch, of all replicas together.
        mode: How the step ran; ``xla`` if most bytes are inside compiled modules; null at a
            failure.
        in_use_bytes: Allocated at the step's peak, or at the failure; the ledger sums to it
            exactly.
        pool_bytes: Reserved by the allocator at the peak.
        largest_free_bytes: Largest free chunk of the pool at the peak.
        capacity_bytes: The allocator's limit.
        fragmentation: The allocator's own figure at the peak: (free − largest free) / free in the
            pool.
        rounding_bytes: Total of category ``rounding``.
        ledger: Rows at the peak, one for each (layer, category, trainable), largest first.
        saved_for_backward: The activations at the end of the forward pass, or those at the failure,
            largest first.
        not_available: Sentences on what is unknown.
        replay: The check of the step by its replay; null without memory maps.
        largest_tensors: Those of the ledger's tensors whose shapes are known, the largest group
            first.
        held_tensors: The tensors of category ``held_tensors`` at the peak, and those of other
            categories that something outside of the step's ops keeps or makes: constants of
            functions, data sets, variables of no model, sparse gradients made dense. Largest group
            first.
        at_failure: Whether the step ran out of memory, and this is its breakdown at the failed
            allocation."""

    step: Step
    phase: Phase
    device: Name
    wall_time: float
    mode: Mode | None
    in_use_bytes: Size
    pool_bytes: Size | None
    largest_free_bytes: Size | None
    capacity_bytes: Size | None
    fragmentation: Share | None
    rounding_bytes: Size | None
    ledger: tuple[LedgerRow, ...]
    saved_for_backward: tuple[SavedRow, ...]
    not_available: tuple[str, ...]
    replay: Replay | None = None
    held_tensors: Annotated[tuple[HeldTensorGroup, ...], Most(MAX_HELD_GROUPS)] = ()
    batch_size: Size | None = None
    at_failure: Annotated[bool, NotStored] = False
    largest_tensors: Annotated[tuple[TensorGroup, ...], Most(MAX_TENSOR_GROUPS)] = ()

    def faults(self) -> Iterator[str]:
        if sum(row.bytes for row in self.ledger) != self.in_use_bytes:
            yield f"the ledger of a snapshot does not sum to its {self.in_use_bytes} bytes in use"

    @property
    def pool(self) -> Pool | None:
        return pool_of(self.pool_bytes, self.in_use_bytes, self.largest_free_bytes)


LISTS = tuple(field.name for field in fields_of(Snapshot) if field.kind == "rows")
"""The fields of a `Snapshot` that hold rows."""


Group: TypeAlias = tuple[Category, bool | None]
"""A category and whether its layers are trainable, None if that does not apply."""
_SPLIT: tuple[Category, ...] = ("weights",)
_Key: TypeAlias = tuple[str | None, Category, bool | None]
_Kind = TypeVar("_Kind")


@dataclasses.dataclass(frozen=True)
class GroupBytes:
    """Bytes of a category, and whether its layers are trainable, None if that does not apply."""

    category: Category
    trainable: bool | None
    bytes: Size


@dataclasses.dataclass(frozen=True)
class TracedPeak:
    """The breakdown of a traced step at its peak: its groups in stack order."""

    step: Step
    peak_bytes: Size
    parts: tuple[GroupBytes, ...]


def sums_by(rows: Iterable[Any], key: Callable[[Any], _Kind]) -> Counter[_Kind]:
    """Bytes of rows by a key, the rows of a ledger or groups of tensors."""
    sums: Counter[_Kind] = Counter()
    for row in rows:
        sums[key(row)] += row.bytes
    return sums


def group_sums(
    ledger: Iterable[LedgerRow], split: Collection[Category] = _SPLIT
) -> dict[Group, int]:
    """Bytes of the groups of a ledger, in stack order, frozen before trainable.

    Categories of `split` have a group for each trainability, others one group."""
    sums = sums_by(
        ledger, lambda row: (row.category, row.trainable if row.category in split else None)
    )
    return {group: sums[group] for group in sorted(sums, key=lambda group: stack_order(*group))}


@dataclasses.dataclass(frozen=True)
class LedgerTotals:
    """Sums of ledgers: the groups of any of them, in stack order, and their bytes, shape
    [snapshots, groups]."""

    groups: tuple[Group, ...]
    bytes: Integers


def ledger_totals(snapshots: Sequence[Snapshot], layer: str | None = None) -> LedgerTotals:
    """Sum each snapshot's ledger, or the rows of one layer."""
    sums = [
        group_sums((row for row in one.ledger if layer in (None, row.layer)), CATEGORIES)
        for one in snapshots
    ]
    groups = tuple(
        sorted({group for own in sums for group in own}, key=lambda group: stack_order(*group))
    )
    values = [[own.get(group, 0) for group in groups] for own in sums]
    return LedgerTotals(groups, np.asarray(values, np.int64).reshape(len(sums), len(groups)))


def split_rounding(rows: Iterable[LedgerRow]) -> tuple[LedgerRow, ...]:
    """The rows with all known rounding in rows of category ``rounding``, which keep their owners'
    layer and trainable.

    The sum of bytes stays the same. There is one row for each (layer, category, trainable), largest
    first, and none without bytes. Rows that are already split stay the same."""
    sums: Counter[_Key] = Counter()
    unknown: set[_Key] = set()
    for row in rows:
        own: _Key = (row.layer, row.category, row.trainable)
        rounding = (
            row.bytes
            if row.category == "rounding"
            else min(max(row.rounding_bytes or 0, 0), row.bytes)
        )
        if row.rounding_bytes is None:
            unknown.add(own)
        sums[own] += row.bytes - rounding
        sums[row.layer, "rounding", row.trainable] += rounding
    split = []
    for key, size in sums.items():
        rounding_bytes = size if key[1] == "rounding" else None if key in unknown else 0
        split += [LedgerRow(*key, size, rounding_bytes)] if size else []
    return tuple(
        sorted(
            split, key=lambda row: (-row.bytes, row.category, row.layer or "", str(row.trainable))
        )
    )


def rounding_total(rows: Iterable[LedgerRow]) -> int:
    """Bytes of category ``rounding``."""
    return sum(row.bytes for row in rows if row.category == "rounding")
