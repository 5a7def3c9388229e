"""One question about recorded steps: what is simulated for it, and the peak that follows from the
simulation. Pure."""

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from tb_memplugin.fit.asking import PeakSource
from tb_memplugin.fit.changes import Change, Changed, change_of
from tb_memplugin.fit.conditions import Conditions, Interval, matching
from tb_memplugin.fit.recomputation import recomputed
from tb_memplugin.fit.simulation import (
    MARGIN,
    Simulated,
    at_peaks,
    in_one_piece,
    peak_in_one_piece,
    recorded_peak,
)
from tb_memplugin.fit.steps import NOT_ASKED, SizedStep, sized_for
from tb_memplugin.schema import (
    ChunkOwner,
    Integers,
    Layer,
    LedgerRow,
    StepRequests,
    format_bytes,
    is_gpu,
    owned,
)

COMPILED_MARGIN = 0.08
"""Share of the larger of the recorded and the predicted peak by which compiled steps on a GPU may
need less or more than follows from two batch sizes. At 0,
`test_compiled_steps_on_a_gpu_have_a_range_around_what_two_batch_sizes_tell` fails."""
SHAPES_MARGIN = 0.04
"""The same for compiled steps whose bytes follow from the shapes of one recorded batch size's
buffers. Fitted on six models of real size at a third and three times the batch on an H200
(tests/gpu/real_size.py): the largest miss of 12 predictions was 1.7 % of the larger peak. At 0,
`test_a_compiled_chunk_follows_the_moment_at_which_most_of_its_buffers_live` fails."""
PLANNED_MARGIN = 0.1
"""The same for steps that XLA planned for JAX. Fitted on eight plans of five models on a CPU, from
batch size 8, 16 or 32 to three times as many: for a small transformer it planned other fusions,
which left seven more tensors alive, a miss of 9.5 %; all others were up to 3 %. At 0.04,
`test_the_range_covers_other_fusions_of_a_transformer` fails."""
UNCERTAIN_SHARE = 0.01
"""Share of a step's requests up to which sizes that are unknown for the batch size widen the range
without a note. At 0, `test_only_sizes_that_the_batch_leaves_open_are_called_unknown` fails."""
ALWAYS_COPIED_BYTES = 32 << 20
"""Arrays from this size on have pages of their own from the C library, behind a header, so they are
never aligned as TensorFlow needs it to use them in place (glibc's largest threshold)."""
ORDER_SHARE = 0.05
"""Share by which the range of a replay, but for `MARGIN`, may differ from its peak. Within it, 11
predictions for the Transformer in tests/fixtures/batch_sizes/h200 missed by up to 0.9 %; beyond it,
those of 12 small programs on a CPU by up to 16 %. At 1,
`test_a_peak_that_the_order_of_operations_decides_is_an_estimate` fails."""
WITHOUT_FIRST_STEP = (
    "The run's first step was not traced: its long-lived chunks are simulated without it."
)

ORDER_DECIDES = (
    "The sizes of all tensors are known. The order of operations, which differs from run to run, "
    "decides how many of them are in memory at once."
)

SAME_DATA = "The data set on the device ({}) is assumed to stay as large as it is."

Method: TypeAlias = Literal["recorded", "replay", "compiled", "two_sizes", "estimate", "unknown"]


@dataclasses.dataclass(frozen=True)
class Case:
    """What is simulated; `saved_bytes` are those of the additional bytes that are saved for the
    backward pass."""

    changed: Changed
    change: Change
    saved_bytes: int
    method: Method
    sentences: tuple[str, ...]


def make_case(
    first: Sequence[StepRequests],
    steps: Sequence[StepRequests],
    conditions: Conditions,
    layers: Sequence[Layer],
    asked: Mapping[int, int] = NOT_ASKED,
) -> Case:
    """The recorded steps whose batch size is closest to the requested one, after the first step, as
    conditions change them. `asked` are the bytes of a compiled step's temporaries by batch size,
    where the compiler was asked."""
    batch = conditions.batch_size
    frozen = matching(layers, conditions.freeze or "")
    thawed = matching(layers, conditions.unfreeze or "")
    sized = sized_for(first, steps, batch, asked)
    is_asked = batch in asked
    scratch = unknown = between = 0
    measured = by_shapes = False
    for _, sizes in sized[len(first) :]:
        by_shapes = by_shapes or sizes.module_bytes > 0
        scratch, unknown = max(scratch, sizes.scratch_bytes), max(unknown, sizes.uncertain_bytes)
        between, measured = max(between, sizes.between_bytes), measured or sizes.measured
    change = change_of(conditions, layers, frozen, thawed, steps[-1])
    if is_asked:
        change = dataclasses.replace(change, copied_bytes=0)
    changed = change.applied(sized, batch or 0)
    if change.recompute and not is_asked:
        changed = _recomputed(changed, change)
    method: Method = "compiled" if is_asked else "two_sizes" if measured else "replay"
    method = "estimate" if change.is_estimate else method
    sentences = []
    is_derived = by_shapes or bool(asked) or (measured and is_gpu(steps[-1].device))
    if steps[-1].mode == "xla" and is_derived and not is_asked:
        margin = COMPILED_MARGIN
        if by_shapes:
            margin = PLANNED_MARGIN if in_one_piece(steps[-1]) else SHAPES_MARGIN
        # The nearer a batch size that the compiler was asked about, the less its answer can differ.
        margin *= min((1.0, *(abs(math.log2(size / (batch or size))) for size in asked)))
        changed = dataclasses.replace(changed, transient=_compiled(changed, margin))
        sentence = (
            "XLA may choose other kernels and buffers for another batch size. The range covers "
            "that."
        )
        if by_shapes:
            known = "The bytes of the compiled step follow from the shapes of its buffers."
            sentence = f"{known} {sentence}"
        sentences.append(sentence)
    if change.copied_bytes:
        copied = format_bytes(change.copied_bytes)
        sentences.append(
            f"XLA may copy up to {copied} of what an update reads. The range covers that."
        )
    total = 0
    for step in changed.high:
        total = max(total, int(step.requests.requested.sum()))
    if scratch > UNCERTAIN_SHARE * total:
        sentences.append(
            f"{format_bytes(scratch)} of the recorded requests are scratch space of the GPU's "
            "kernels. It usually follows the batch size; the range covers other algorithms."
        )
    if between > UNCERTAIN_SHARE * total:
        sentences.append(
            f"Unknown for {format_bytes(unknown)} of the recorded requests: whether they grow "
            "with the batch size. The range covers both. A second recorded batch size makes them "
            "known."
        )
    if sentences or (between and method == "replay"):
        method = "estimate"
    if not first:
        sentences.append(WITHOUT_FIRST_STEP)
    saved_bytes = change.example_bytes * (batch or 0)
    return Case(changed, change, saved_bytes, method, (*change.sentences, *sentences))


def _recomputed(changed: Changed, change: Change) -> Changed:
    def again(steps: Sequence[SizedStep]) -> list[SizedStep]:
        return [recomputed(step, change.recompute, change.outputs) for step in steps]

    typical = None if changed.typical is None else again(changed.typical)
    return dataclasses.replace(
        changed, low=again(changed.low), high=again(changed.high), typical=typical
    )


def _compiled(changed: Changed, share: float) -> Interval:
    low, typical, high = changed.transient
    steady = [step for step in changed.high if not step.requests.first]
    # A step that failed was many times too large: a share of it would be as much as all that fits.
    recorded = [
        SizedStep(step.requests, step.requests.requested)
        for step in steady
        if not step.requests.planned
    ]
    margin = round(share * max(map(peak_in_one_piece, [*steady, *recorded])))
    return Interval(low - margin, typical, high + margin)


@dataclasses.dataclass(frozen=True)
class PeakParts:
    """A peak with its breakdown, which sums to it, and its bytes that are live at once."""

    peak: Interval
    ledger: tuple[LedgerRow, ...]
    demand_bytes: int | None  # each rounded up to 256; never more than the peak; None if unknown
    method: Method = "recorded"
    sentences: tuple[str, ...] = ()  # what is assumed

    @property
    def source(self) -> PeakSource:
        return "measured" if self.method == "recorded" else "predicted"


def simulated_parts(
    case: Case, found: Simulated, bias: float, recorded: Interval | None, latest: StepRequests
) -> PeakParts:
    """The peak of simulated steps, with the additional bytes.

    If the simulated peak of the recorded training is above the measured one, which `bias` says as a
    share, the range begins lower by the same share; if it is below, the range ends higher. The
    range is at least as wide as the recorded steps differ: two convolutions that sometimes overlap
    have two peaks."""
    change, transient = case.change, case.changed.transient
    peak = found.peak.typical_bytes + transient.typical_bytes
    low = round((found.peak.low_bytes + transient.low_bytes) * (1 - max(bias, 0.0)))
    high = round((found.peak.high_bytes + transient.high_bytes) * (1 - min(bias, 0.0)))
    if recorded is not None:
        low = min(low, peak * recorded.low_bytes // recorded.typical_bytes)
        high = max(high, -(-peak * recorded.high_bytes // recorded.typical_bytes))
    data_set = _data_set(latest)
    # Another process may not have these in the memory of a CPU's allocator: TensorFlow copies an
    # array into it, or uses the array itself if that happens to be aligned.
    in_place = 0 if is_gpu(latest.device) else data_set[data_set < ALWAYS_COPIED_BYTES].sum()
    interval = Interval(min(low - int(in_place), peak), peak, max(high, peak))
    more = [
        (ChunkOwner(None, "activations", None), case.saved_bytes),
        (ChunkOwner(None, "workspace", None), transient.typical_bytes - case.saved_bytes),
    ]
    ledger = _ledger(found.owned, found.peak.typical_bytes, change, more)
    live = found.live_bytes + sum(case.changed.extra) + transient.typical_bytes
    method, sentences = case.method, case.sentences
    is_wide = (
        interval.low_bytes < (1 - MARGIN - ORDER_SHARE) * peak
        or interval.high_bytes > (1 + MARGIN + ORDER_SHARE) * peak
    )
    repeats = all((step.sizes == step.requests.requested).all() for step in case.changed.high)
    if method == "replay" and is_wide and not repeats:
        method, sentences = "estimate", (*sentences, ORDER_DECIDES)
    if not repeats and (kept := int(data_set.sum())) > MARGIN * peak:
        sentences = (*sentences, SAME_DATA.format(format_bytes(kept)))
    return PeakParts(interval, ledger, live, method, sentences)


def recorded_parts(
    steps: Sequence[StepRequests], batch: int | None, measured: Interval
) -> PeakParts:
    """The measured peaks of a batch size that ran, with the breakdown of its most typical recorded
    step."""
    low, median, high = measured
    own = [(one, recorded_peak(one)) for one in steps if one.batch_size == batch]
    if not own:
        return PeakParts(measured, (), None)
    typical, peak = min(own, key=lambda pair: abs(pair[1].bytes - median))
    owners, demand = at_peaks([(SizedStep(typical, typical.requested), peak)])
    size = max(median, demand)  # the median is that of other steps as well, which may need less
    interval = Interval(low, size, max(high, size))
    return PeakParts(interval, _ledger(owners, size, Change()), demand)


def _data_set(requests: StepRequests) -> Integers:
    """Sizes of the arrays on the device that batches are read from."""
    is_input = owned(requests, lambda owner: owner.category == "inputs")
    stays = (requests.birth < 0) & (requests.death >= requests.events) & (requests.batch_power == 0)
    sizes: Integers = requests.requested[is_input & stays]
    return sizes


def _ledger(
    found: collections.Counter[ChunkOwner],
    peak: int,
    change: Change,
    additional: Sequence[tuple[ChunkOwner, int]] = (),
) -> tuple[LedgerRow, ...]:
    """The ledger of a peak, largest rows first; they sum to it and the `additional` bytes, which no
    simulation has."""
    totals = found.copy()
    for owner, size in change.extra:
        totals[owner] += size
    rest = peak - sum(totals.values())
    for owner, size in ((ChunkOwner(None, "rounding", None), rest), *additional):
        totals[owner] += size
    sums = collections.Counter[ChunkOwner]()
    for owner, size in totals.items():
        for other, part in owners_after(change, owner, size):
            sums[other] += part
    rows = [
        LedgerRow(
            owner.layer,
            owner.category,
            owner.trainable,
            size,
            size if owner.category == "rounding" else 0,
        )
        for owner, size in sums.items()
        if size
    ]
    return tuple(sorted(rows, key=lambda row: -row.bytes))


def owners_after(change: Change, owner: ChunkOwner, size: int) -> list[tuple[ChunkOwner, int]]:
    """The owners after the change of an owner's bytes: some of a layer's weights may stay
    frozen."""
    if owner.category == "workspace" and owner.layer in change.saved:
        owner = dataclasses.replace(owner, category="activations")
    elif owner.category == "activations" and owner.layer in change.unsaved and not change.halved:
        owner = dataclasses.replace(owner, category="workspace")
    if owner.trainable and owner.layer in change.frozen:
        return [(dataclasses.replace(owner, trainable=False), size)]
    trained = change.trained.get(owner.layer or "")
    if owner.trainable is not False or trained is None:
        return [(owner, size)]
    part = min(size, trained) if owner.category == "weights" else size
    return [(dataclasses.replace(owner, trainable=True), part), (owner, size - part)]
