"""What freezing, another optimizer or another precision changes in recorded steps: sizes and
lifetimes. Pure.

Optimizer state and weight gradients follow exactly from the weights. What else changes is an
estimate with its range: which activations are saved, when gradients are freed, what half precision
copies. Layers before the first trained one take no part in the backward pass: their results are
freed in the forward pass, unless they are trained."""

import collections
import dataclasses
import itertools
import operator
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tb_memplugin.fit.conditions import NO_BYTES, SLOTS, Conditions, Interval
from tb_memplugin.fit.steps import LEFT_OUT, BatchSizes, Rows, SizedStep, module_row
from tb_memplugin.schema import (
    OF_PASSES,
    PERSISTENT,
    RESULTS,
    Category,
    ChunkOwner,
    Floats,
    Integers,
    Layer,
    StepRequests,
    counted,
    example_bytes,
    former_name,
    is_gpu,
    owned,
    recorded_precision,
    unfreezing_bytes,
)

Segments = tuple[tuple[str, ...], ...]
"""Paths of the layers that are recomputed together, segment after segment in the order of the
forward pass."""
LATER_RESULTS = 3
"""A result that is not saved is freed once this many later ones exist: its consumers have run.
Tests pass with 1."""
OVERLAPPING_RESULTS = 3
"""Results of recomputed layers that a step may hold in addition, since operations run in parallel.

Fitted on recordings of `tests/integration/plan_child.py wide` on two busy cores: with 1, the median
of a training lay up to 2.4 % above the range in 2 of about 30; with 2, 2.0 % in 1 of about 11; with
3, in none of 12. Of the plans in docs/accuracy.md, medians lay at most 2.2 results above the
simulated peak."""
OVERLAPPING_RESULTS_ON_A_GPU = 2
"""The same on a GPU, which runs one operation after the other. Of 12 plans for 8 models on an
NVIDIA H100 (`tests/gpu/planned.py`), the peak was at most 0.95 results above the simulated one."""
FEWER_RESULTS = 1
"""Results of recomputed layers that a step may hold less than the simulated ones, for the same
reason; none on a GPU.

Fitted on the same model: with 0, the median of a training lay 1.6 % below the range in 1 of 7."""
_OF_TRAINING: tuple[Category, ...] = ("optimizer_state", "weight_gradients")
_UPDATE = re.compile(rf"(?:^|/)(?:{'|'.join(SLOTS)})\d*/")
"""A name scope of one of Keras's optimizers, such as `rm_sprop_1`, without underscores."""


@dataclasses.dataclass(frozen=True)
class Change:
    """What conditions other than batch size and capacity change."""

    # additional long-lived chunks: owner and size of each
    extra: tuple[tuple[ChunkOwner, int], ...] = ()
    transient: Interval = NO_BYTES  # additional bytes at the peak
    example_bytes: int = 0  # additional bytes at the peak for each example, typically
    frozen: frozenset[str] = frozenset()  # layers that are frozen in addition
    # layer to its bytes trained in addition
    trained: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # layers that save nothing any more, as no layer before is trained
    unsaved: frozenset[str] = frozenset()
    # layers that save their results for the backward pass in addition
    saved: frozenset[str] = frozenset()
    without_slots: bool = False  # whether the recorded optimizer state of layers goes
    copied_bytes: int = 0  # most that a compiled module may hold in addition
    # batches whose gradients an update sums; with several, most steps leave the weights as they are
    batches: int = 1
    # halved, doubled: whether activations have two bytes instead of four, or four instead of two
    halved: bool = False
    doubled: bool = False
    # whether the update waits for all gradients, which loss scaling tests together
    tests_gradients: bool = False
    frees_gradients: bool = False  # whether it does not wait any more
    recompute: Segments = ()
    # segments' last layers: bytes per example
    outputs: Mapping[str, int] = dataclasses.field(default_factory=dict)
    is_estimate: bool = False
    sentences: tuple[str, ...] = ()

    def applied(self, recorded: Sequence[tuple[StepRequests, BatchSizes]], batch: int) -> "Changed":
        """Recorded steps with their sizes for a batch after the change."""
        low = [self._least(one, sizes.low) for one, sizes in recorded]
        high = [self._most(one, sizes.high) for one, sizes in recorded]
        typical = None
        scratches = any(sizes.scratch_bytes for _, sizes in recorded)
        is_halfway = self.halved or (self.frees_gradients and not self.doubled)
        if not is_halfway and (self.unsaved or self.saved or self.doubled or scratches):
            typical = [self._typical(one, sizes.typical) for one, sizes in recorded]
        extra = [size for _, size in self.extra]
        return Changed(
            low,
            high,
            typical,
            extra,
            self.batches,
            self._transient(high, self.example_bytes * batch),
        )

    def _transient(self, most: Sequence[SizedStep], saved: int) -> Interval:
        """With those of `saved` results. At most, there are gradients of the largest two of them,
        and some results of recomputed layers; at least, there are fewer of these."""
        on_gpu = is_gpu(most[0].requests.device)
        fewer, more = (
            (0, OVERLAPPING_RESULTS_ON_A_GPU) if on_gpu else (FEWER_RESULTS, OVERLAPPING_RESULTS)
        )
        largest, repeated = (
            max(int(step.sizes[rows(step.requests)].max(initial=0)) for step in most)
            for rows in (self._saved_rows, self._repeated_rows)
        )
        low, typical, high = self.transient
        return Interval(
            low - fewer * repeated, typical + saved, high + saved + 2 * largest + more * repeated
        )

    def _most(self, requests: StepRequests, sizes: Integers) -> SizedStep:
        """The step with all that may stay."""
        requests = self._scaled(requests)
        changed = with_lifetimes(
            requests, np.zeros(len(requests), bool), self._saved_rows(requests)
        )
        more = (
            self.copied_bytes * (np.arange(len(requests)) == module_row(requests))
            if self.copied_bytes
            else 0
        )
        return SizedStep(changed, self._most_sizes(requests, sizes) + more)

    def _least(self, requests: StepRequests, sizes: Integers) -> SizedStep:
        """The step without all that may go."""
        requests = self._scaled(requests)
        gone = self._unsaved_rows(requests, OF_PASSES)
        if self.without_slots or self.batches > 1:
            gone |= _by_update(requests) & owned(
                requests, lambda owner: owner.category == "workspace"
            )
        if self.batches > 1:
            requests = in_place(
                requests,
                _by_update(requests) & owned(requests, lambda one: one.category == "weights"),
            )
        kept = np.where(gone, LEFT_OUT, self._most_sizes(requests, sizes))
        if self.halved:
            kept = np.where(_of_layers_passes(requests) & (kept > 0), kept // 2, kept)
        if self.doubled:
            kept = np.where(
                _half_copies(requests), LEFT_OUT, np.where(kept > 0, np.minimum(kept, sizes), kept)
            )
        return SizedStep(requests, self._freed(requests, kept))

    def _typical(self, requests: StepRequests, sizes: Integers) -> SizedStep:
        """The step as TensorFlow usually runs it, if it frees results earlier or later than
        before."""
        if self.doubled:
            return SizedStep(requests, self._freed(requests, self._most_sizes(requests, sizes)))
        results = self._unsaved_rows(requests, ("activations",))
        end = int(requests.birth[results].max(initial=-1))
        early = self._unsaved_rows(requests, RESULTS) & (requests.birth <= end)
        gone = self._unsaved_rows(requests, OF_PASSES) & ~early
        changed = with_lifetimes(requests, early, self._saved_rows(requests))
        return SizedStep(changed, np.where(gone, LEFT_OUT, self._most_sizes(requests, sizes)))

    def _saved_rows(self, requests: StepRequests) -> Rows:
        saved = owned(
            requests, lambda owner: owner.layer in self.saved and owner.category in OF_PASSES
        )
        return own_rows(requests) & saved

    def _repeated_rows(self, requests: StepRequests) -> Rows:
        """Which chunks are results of recomputed layers and of those inside them."""
        layers = tuple(f"{path}/" for segment in self.recompute for path in segment)
        return owned(
            requests,
            lambda owner: owner.category == "activations" and f"{owner.layer}/".startswith(layers),
        )

    def _scaled(self, requests: StepRequests) -> StepRequests:
        if not self.tests_gradients:
            return requests
        old = (requests.birth < 0) & owned(requests, lambda owner: owner.category in PERSISTENT)
        gradients = _last_gradients(requests)
        return once_all_are_there(requests, gradients, (_by_update(requests) | old) & ~gradients)

    def _most_sizes(self, requests: StepRequests, sizes: Integers) -> Integers:
        gone = owned(
            requests,
            lambda owner: (
                (owner.layer in self.frozen and owner.category in _OF_TRAINING)
                or (
                    self.without_slots
                    and owner.category == "optimizer_state"
                    and _is_of_model(owner.layer)
                )
            ),
        )
        if self.doubled:
            # Temporaries of the update are in full precision already.
            doubled = (
                _of_layers_passes(requests) & ~_by_update(requests) & ~_like_variables(requests, 1)
            )
            sizes = np.where(doubled & (sizes > 0), 2 * sizes, sizes)
            gone |= _half_copies(requests)
        return np.where(gone, LEFT_OUT, sizes)

    def _freed(self, requests: StepRequests, sizes: Integers) -> Integers:
        """Without the gradients that are applied one by one after the change: the largest one
        stays."""
        if not self.frees_gradients:
            return sizes
        gradients = _gradients(requests) & (requests.birth >= 0)
        gradients[int(np.argmax(np.where(gradients, sizes, LEFT_OUT)))] = False
        return np.where(gradients, LEFT_OUT, sizes)

    def _unsaved_rows(self, requests: StepRequests, categories: Sequence[Category]) -> Rows:
        return owned(
            requests, lambda owner: owner.layer in self.unsaved and owner.category in categories
        )


@dataclasses.dataclass(frozen=True)
class Changed:
    """The steps of a training under other conditions: with the least and with the most bytes."""

    low: list[SizedStep]
    high: list[SizedStep]
    # the steps as they usually run, None if that is halfway between least and most
    typical: list[SizedStep] | None
    extra: list[int]  # sizes of additional long-lived chunks
    batches: int  # steps of an update
    transient: Interval  # additional bytes at the peak, which the steps leave out


def own_rows(requests: StepRequests) -> Rows:
    """Which chunks the step allocates and frees, shape [chunks]."""
    return (requests.birth >= 0) & (requests.death < requests.events)


def _is_of_model(layer: str | None) -> bool:
    return layer is not None and former_name(layer) is None


def _gradients(requests: StepRequests) -> Rows:
    return owned(requests, lambda owner: owner.category == "weight_gradients")


def _last_gradients(requests: StepRequests) -> Rows:
    """Which weight gradients the update applies: the last ones of the size of a variable of their
    layer, to which others are summed, such as those of several calls of a layer."""
    left = collections.Counter(_trained_variables(requests))
    if not left:
        return _gradients(requests)
    last = np.zeros(len(requests), bool)
    rows = np.flatnonzero(_gradients(requests) & (requests.birth >= 0))
    for row in rows[np.argsort(-requests.birth[rows], kind="stable")].tolist():
        key = requests.owners[int(requests.owner[row])].layer or "", int(requests.requested[row])
        last[row] = left[key] > 0
        left[key] -= 1
    return last


def _half_copies(requests: StepRequests) -> Rows:
    """Which chunks hold a trained variable or its gradient, which mixed precision casts, by their
    layer and size."""
    return _like_variables(requests, 2) & (_gradients(requests) | _of_layers_passes(requests))


def _like_variables(requests: StepRequests, parts: int) -> Rows:
    """Which of the step's own chunks have the size of a trained variable of their layer, or a part
    of it."""
    sizes = {(layer, size // parts) for layer, size in _trained_variables(requests)}
    pairs = zip(requests.owner.tolist(), requests.requested.tolist(), strict=True)
    alike = np.asarray(
        [(requests.owners[owner].layer, size) in sizes for owner, size in pairs], bool
    )
    return alike & (requests.birth >= 0)


def _of_layers_passes(requests: StepRequests) -> Rows:
    return owned(requests, lambda owner: owner.layer is not None and owner.category in OF_PASSES)


def _by_update(requests: StepRequests) -> Rows:
    """By the names of their ops."""
    return np.asarray([bool(_UPDATE.search(op.replace("_", ""))) for op in (*requests.ops, "")])[
        requests.op
    ]


def with_lifetimes(requests: StepRequests, unsaved: Rows, saved: Rows) -> StepRequests:
    """The step with some of its own chunks freed earlier or later.

    `unsaved` ones are freed in the forward pass, but the last, an input that may be saved; `saved`
    ones at the end."""
    own = own_rows(requests)
    freed = requests.death.astype(np.float64)
    early = np.flatnonzero(unsaved & own)
    early = early[np.argsort(requests.birth[early], kind="stable")]
    last = len(early) - 1
    consumed = requests.birth[early[np.minimum(np.arange(last) + LATER_RESULTS, last)]] + 0.5
    freed[early[:last]] = np.minimum(freed[early[:last]], consumed)
    late = saved & own
    freed[late] = 2.0 * requests.events - requests.birth[late]  # the last one first
    return _with_events(requests, requests.birth.astype(np.float64), freed)


def in_place(requests: StepRequests, rows: Rows) -> StepRequests:
    """The step with `rows` requested once the old contents of their variables are freed, in whose
    chunks they are."""
    born = requests.birth.astype(np.float64)
    old = (requests.birth < 0) & (requests.death < requests.events)
    for row in np.flatnonzero(rows & (requests.birth >= 0)).tolist():
        same = (requests.owner == requests.owner[row]) & (
            requests.requested == requests.requested[row]
        )
        replaced = np.flatnonzero(old & same)
        if len(replaced):
            old[replaced[0]] = False
            born[row] = max(born[row], float(requests.death[replaced[0]]) + 0.5)
    return _with_events(requests, born, requests.death.astype(np.float64))


def once_all_are_there(requests: StepRequests, awaited: Rows, waiting: Rows) -> StepRequests:
    """The step with `waiting` chunks requested and freed after the last `awaited` one; these stay
    until then."""
    last = int(requests.birth[awaited].max(initial=-1))
    born, freed = requests.birth.astype(np.float64), requests.death.astype(np.float64)
    early = waiting & (born >= 0) & (born < last)
    born[early] = last + (born[early] + 1) / (requests.events + 1)
    early = (waiting | awaited) & (freed < last)
    freed[early] = last + (freed[early] + 1) / (requests.events + 1)
    return _with_events(requests, born, freed)


def _with_events(requests: StepRequests, born: Floats, freed: Floats) -> StepRequests:
    if (born == requests.birth).all() and (freed == requests.death).all():
        return requests
    return rearranged(requests, born, freed)[0]


def rearranged(
    requests: StepRequests,
    born: Floats,
    freed: Floats,
    copies: Sequence[int] = (),
    copies_born: Sequence[float] = (),
    copies_freed: Sequence[float] = (),
) -> tuple[StepRequests, Integers]:
    """The step with its events in the order of these places and with copies of rows, and the old
    row of each.

    Of events at one place, deallocations come last: a result is freed after the request of its
    consumer."""
    count, more = len(requests), len(copies)
    new = np.arange(count, count + more)
    births, deaths = (
        np.flatnonzero(requests.birth >= 0),
        np.flatnonzero(requests.death < requests.events),
    )
    entries = np.concatenate([births, -1 - deaths, new, -1 - new])
    place = np.concatenate([born[births], freed[deaths], copies_born, copies_freed])
    later = requests.events + np.arange(2 * more)
    # the order so far
    before = np.concatenate([requests.birth[births], requests.death[deaths], later])
    entries = entries[np.lexsort((before, entries < 0, place))]
    events = len(entries)
    birth, death, numbers = (
        np.full(count + more, -1),
        np.full(count + more, events),
        np.arange(events),
    )
    birth[entries[entries >= 0]] = numbers[entries >= 0]
    death[-1 - entries[entries < 0]] = numbers[entries < 0]
    rows = np.concatenate([np.arange(count), np.asarray(copies, np.int64)])
    names = ("address", "allocated", "requested", "batch_power", "owner", "op")
    columns = {name: getattr(requests, name)[rows] for name in names}
    return dataclasses.replace(requests, events=events, birth=birth, death=death, **columns), rows


def change_of(
    conditions: Conditions,
    layers: Sequence[Layer],
    frozen: Sequence[Layer],
    thawed: Sequence[Layer],
    step: StepRequests,
) -> Change:
    """The change that conditions make to a recorded program; `frozen` and `thawed` are the layers
    that they match."""
    # Layers that are trained have weights that never are, such as statistics.
    thawed = [one for one in thawed if one.weight_bytes and not one.trainable]
    change = _freezing(Change(), conditions, layers, frozen, thawed)
    slots = _slots(layers)
    if conditions.optimizer is not None:
        slots = SLOTS[conditions.optimizer]
        change = _other_optimizer(change, conditions.optimizer, layers)
    if conditions.unfreeze is not None:
        change = _unfreezing(change, conditions.unfreeze, layers, thawed, slots)
    if conditions.accumulate:
        change = _accumulating(change, layers, step, conditions.batch_size, slots)
    if conditions.recompute:
        change = _recomputing(change, conditions.recompute, layers)
    before = recorded_precision(layers) or "float32"
    if conditions.precision not in (None, before):
        change = _other_precision(change, before, str(conditions.precision), layers)
    return change


def _extended(
    change: Change,
    sentence: str,
    extra: Iterable[tuple[ChunkOwner, int]] = (),
    transient: Interval = NO_BYTES,
    is_estimate: bool = True,
    **fields: Any,
) -> Change:
    return dataclasses.replace(
        change,
        extra=(*change.extra, *extra),
        transient=Interval(*map(operator.add, change.transient, transient)),
        is_estimate=change.is_estimate or is_estimate,
        sentences=(*change.sentences, sentence),
        **fields,
    )


def _freezing(
    change: Change,
    conditions: Conditions,
    layers: Sequence[Layer],
    matched: Sequence[Layer],
    thawed: Sequence[Layer],
) -> Change:
    globs = conditions.freeze
    if globs is None and not conditions.frozen:
        return change
    named = {*conditions.frozen, *(layer.path for layer in matched)}
    frozen = {
        layer.path for layer in layers if layer.trainable_weight_bytes and layer.path in named
    }
    sentence = (
        f"Optimizer state and weight gradients of {counted(len(frozen), 'layer')} are removed. "
        "Layers before the first trained one may save no activations; the range covers both."
        if frozen
        else f"No trainable layer matches {globs!r:.80}, so nothing is frozen."
    )
    trained = (_trained(layers) - frozen) | {one.path for one in thawed}
    unsaved = frozenset(_before_first_trained(layers, trained))
    return _extended(
        change, sentence, is_estimate=bool(frozen), frozen=frozenset(frozen), unsaved=unsaved
    )


def _other_optimizer(change: Change, optimizer: str, layers: Sequence[Layer]) -> Change:
    slots = SLOTS[optimizer]
    kept = [
        layer
        for layer in layers
        if layer.trainable_weight_bytes and layer.path not in change.frozen
    ]
    largest = max((layer.trainable_weight_bytes for layer in kept), default=0)
    return _extended(
        change,
        f"{optimizer} keeps {counted(slots, 'slot')} for each trainable weight. The range covers "
        "temporaries of its update.",
        ((_slot(layer.path), layer.trainable_weight_bytes) for layer in kept for _ in range(slots)),
        Interval(0, 0, largest if slots > _slots(layers) else 0),
        without_slots=True,
    )


def _unfreezing(
    change: Change, globs: str, layers: Sequence[Layer], thawed: Sequence[Layer], slots: int
) -> Change:
    if not thawed:
        return _extended(
            change,
            f"No frozen layer matches {globs!r:.80}, so nothing is unfrozen.",
            is_estimate=False,
        )
    sizes = {layer.path: unfreezing_bytes(layer) for layer in thawed}
    sentence = (
        f"Weights of {counted(len(thawed), 'layer')} become trainable, with "
        f"{counted(slots, 'slot')} for each. Layers from the first of these on may save their "
        "activations; the range covers both, and the weight gradients."
    )
    added = ((_slot(path), size) for path, size in sizes.items() if size for _ in range(slots))
    before = _before_first_trained(layers, _trained(layers))
    saved = [
        layer
        for layer in layers[layers.index(thawed[0]) :]
        if layer.path in before or layer in thawed
    ]
    return _extended(
        change,
        sentence,
        added,
        Interval(0, 0, sum(sizes.values())),
        # In inference, TensorFlow joins a batch normalization with the convolution before, whose
        # result it then saves.
        example_bytes=sum(
            example_bytes(layer) or 0 for layer in saved if layer.type == "BatchNormalization"
        ),
        trained=sizes,
        saved=frozenset(layer.path for layer in saved),
    )


def _accumulating(
    change: Change, layers: Sequence[Layer], step: StepRequests, batch: int | None, slots: int
) -> Change:
    """Sums gradients over batches of `batch` up to the recorded batch size; over two if either is
    unknown.

    Each trained variable has an accumulator, to which its gradient is added as soon as it is there.
    An update sets them to zeros, which TensorFlow keeps as constants: one for each shape of a
    variable. Shapes are not recorded: variables of one size whose layers' outputs have the same
    last dimension count as one. As an update frees the accumulators one by one, its temporaries
    make the peak higher by a part only: the least bytes are those of a step that only adds
    gradients. At most, one more gradient waits to be added. Of a compiled step, XLA copies what
    several results of an update need before one replaces it: at most all accumulators and slots,
    while all gradients wait."""
    trained = [
        (layer.path, layer.trainable_weight_bytes)
        for layer in layers
        if layer.trainable_weight_bytes
    ]
    sums = [one for one in trained if one[0] not in change.frozen]
    known = {path for path, _ in sums}
    sums = [one for one in _trained_variables(step) if one[0] in known] or sums
    widths = {layer.path: layer.output_shape[-1] for layer in layers if layer.output_shape}
    is_xla = step.mode == "xla"
    zeros = {(size, widths.get(path, 0)) for path, size in sums if not is_xla}
    added = [(_slot(path), size) for path, size in sums]
    added += [(ChunkOwner(None, "other_state", None), size) for size, _ in sorted(zeros)]
    kept = "" if is_xla else ", and TensorFlow keeps zeros of each of their shapes to reset them"
    return _extended(
        change,
        f"The accumulated gradients take as many bytes as the trainable weights{kept}.",
        added,
        Interval(0, 0, max((size for _, size in sums), default=0)),
        is_estimate=False,
        copied_bytes=is_xla * (slots + 2) * sum(size for _, size in sums),
        batches=max(2, step.batch_size // batch) if step.batch_size and batch else 2,
    )


def _trained_variables(requests: StepRequests) -> list[tuple[str, int]]:
    """Layer and bytes of each trained variable that was there when a step began."""
    older = np.flatnonzero(requests.birth < 0).tolist()
    rows = [
        (requests.owners[int(requests.owner[row])], int(requests.requested[row])) for row in older
    ]
    return [
        (owner.layer, size)
        for owner, size in rows
        if owner.category == "weights" and owner.trainable and owner.layer is not None
    ]


def _recomputing(change: Change, segments: Segments, layers: Sequence[Layer]) -> Change:
    last = {segment[-1] for segment in segments}
    return _extended(
        change,
        f"{counted(len(segments), 'segment')} of layers run again in the backward pass. Their "
        "operations may overlap: the range covers some more of their results.",
        recompute=segments,
        outputs={
            one.path: size
            for one in layers
            if one.path in last and (size := example_bytes(one)) is not None
        },
    )


def _other_precision(change: Change, before: str, after: str, layers: Sequence[Layer]) -> Change:
    """Computes in another precision: both are of `PRECISIONS`. Only float16 has loss scaling."""
    copies = sum(layer.weight_bytes for layer in layers) // 2
    added, sentence = NO_BYTES, f"{after}: activations and workspace stay as recorded."
    if before == "float32":
        added = Interval(0, copies // 2, copies)
        sentence = (
            f"{after}: activations, their gradients and workspace take between half and all of "
            "their recorded bytes, plus copies of weights. Weights and optimizer state stay in "
            "float32."
        )
    elif after == "float32":
        sentence = (
            f"{after}: activations, their gradients and workspace take between all and twice of "
            "their recorded bytes, without copies of weights."
        )
    if after == "mixed_float16":
        sentence += (
            " Loss scaling tests all gradients before it applies one, so all of them are in "
            "memory at once."
        )
    elif before == "mixed_float16":
        sentence += (
            " Without loss scaling, gradients may be applied one by one; the range covers both."
        )
    return _extended(
        change,
        sentence,
        transient=added,
        halved=before == "float32",
        doubled=after == "float32",
        tests_gradients=after == "mixed_float16",
        frees_gradients=before == "mixed_float16",
    )


def _slot(path: str) -> ChunkOwner:
    return ChunkOwner(path, "optimizer_state", True)


def _slots(layers: Sequence[Layer]) -> int:
    state = sum(layer.optimizer_bytes for layer in layers)
    weights = sum(layer.trainable_weight_bytes for layer in layers)
    return round(state / weights) if weights else 0


def _trained(layers: Sequence[Layer]) -> set[str]:
    return {layer.path for layer in layers if layer.trainable_weight_bytes}


def _before_first_trained(layers: Sequence[Layer], trained: Collection[str]) -> set[str]:
    """Without those that contain a trained one."""
    before = list(itertools.takewhile(lambda layer: layer.path not in trained, layers))
    return {
        one.path for one in before if not any(path.startswith(f"{one.path}/") for path in trained)
    }
