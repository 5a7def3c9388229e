"""The answer to a question about a recorded run, as text for the terminal, as HTML for notebooks,
and as JSON. Pure."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

from tb_memplugin.fit.cases import Method
from tb_memplugin.fit.conditions import PEAK, Conditions, Interval
from tb_memplugin.fit.simulation import NOT_REPLAYED, FailedRequest, Reproduced
from tb_memplugin.schema import (
    CATEGORIES,
    Category,
    LedgerRow,
    Run,
    Snapshot,
    as_json,
    clean,
    format_bytes,
    format_table,
    html_table,
    html_text,
    values_of,
)

ASKED = ("batch_size", "capacity_bytes", "freeze", "unfreeze", "optimizer", "precision")
"""Conditions that can be asked for."""
FITS = {True: "yes", False: "no", None: "unknown"}
_LEDGER_HEAD = ("category at the predicted peak", "bytes")


@dataclasses.dataclass(frozen=True, repr=False)
class Prediction:
    """What a training would need under some conditions.

    Attributes:
        batch_size, capacity_bytes: The conditions' batch size and capacity, or the recorded ones;
            None if unknown.
        peak_bytes, low_bytes, high_bytes: Predicted peak of bytes in use and its range; None if
            unknown.
        fits: True if every simulated step passes, with the most bytes of the range, and leaves some
            percent of the capacity free; False if every simulation fails, even with the least
            bytes; else None.
        fails_at: The request that fails, None if none does or it is unknown.
        method: ``recorded``: the peaks of recorded steps; ``replay``: all sizes are exact, and the
            order of operations hardly matters; ``compiled``: XLA's compiler was asked;
            ``two_sizes``: some sizes follow from two recorded batch sizes; ``estimate``: some have
            a range, or the order of operations decides; ``unknown``: no prediction.
        reproduced: How much of the recorded steps their replay reproduced.
        assumptions: What the prediction assumes or why there is none, as sentences.
        ledger: Predicted bytes at the peak by owner; sums to `peak_bytes`.
        demand_bytes: Most bytes that are live at once, rounded up to 256 each, in the steps with
            this peak: never more than it. BFC needs no less. None if unknown.
        recorded_peak_bytes: Highest recorded peak, if nothing is changed but for a larger capacity;
            else None. `peak_bytes` is then the median of the steps.
        elsewhere: A sentence on the failure that ended the run, if that was not in a training step
            and training steps may fit; else None."""

    batch_size: int | None
    capacity_bytes: int | None
    peak_bytes: int | None = None
    low_bytes: int | None = None
    high_bytes: int | None = None
    fits: bool | None = None
    fails_at: FailedRequest | None = None
    method: Method = "unknown"
    reproduced: Reproduced = NOT_REPLAYED
    assumptions: tuple[str, ...] = ()
    ledger: tuple[LedgerRow, ...] = ()
    demand_bytes: int | None = None
    recorded_peak_bytes: int | None = None
    elsewhere: str | None = None

    def __repr__(self) -> str:
        size = "unknown" if self.batch_size is None else f"{self.batch_size:,}"
        return (
            f"<{type(self).__name__} batch size {size}, peak {format_bytes(self.peak_bytes)} of "
            f"{format_bytes(self.capacity_bytes)}, fits={self.fits}, method={self.method}>"
        )


@dataclasses.dataclass(frozen=True)
class Enough:
    """A capacity at which a training fits: the smallest one that passes, and with the reserve."""

    bytes: int
    without_reserve_bytes: int


@dataclasses.dataclass(frozen=True, repr=False)
class WhatIf:
    """What a run would need under some conditions.

    `print` shows what ``tb-memplugin what-if`` shows.

    Attributes:
        device: The device.
        conditions: The conditions.
        prediction: The prediction.
        largest_batch_size: The largest batch size at which every simulated step fits into the
            capacity; 0 if none does, None if that is unknown.
        recorded_batch_sizes: Batch sizes of the recorded steps, the latest one last.
        recorded_steps: The recorded steps that the prediction comes from.
        enough: If the training does not fit, a capacity at which it fits; None if unknown.
        measured_peak_bytes: Median peak of the run's steps with the latest recorded batch size;
            None if unknown."""

    device: str
    conditions: Conditions
    prediction: Prediction
    largest_batch_size: int | None
    recorded_batch_sizes: tuple[int, ...]
    recorded_steps: tuple[int, ...]
    measured_peak_bytes: int | None
    enough: Enough | None = None

    @property
    def fits(self) -> bool | None:
        """Whether the steps fit into the capacity, as in `prediction`; None if unknown."""
        return self.prediction.fits

    @property
    def peak_bytes(self) -> int | None:
        """The predicted peak, as in `prediction`, or the recorded median; None if unknown."""
        return self.prediction.peak_bytes

    @property
    def sentence(self) -> str:
        """The answer in words: whether it fits, why not, and what would be enough."""
        return verdict_sentence(self.prediction, self.enough)

    def __str__(self) -> str:
        rows = _ledger_rows(self.prediction)
        return "\n".join([*_lines(self), *(["", format_table(_LEDGER_HEAD, rows)] if rows else [])])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {clean(self.device)}: {self.prediction!r}>"

    def _repr_html_(self) -> str:
        rows = _ledger_rows(self.prediction)
        return html_text("\n".join(_lines(self))) + (html_table(_LEDGER_HEAD, rows) if rows else "")


def describe_what_if(answer: WhatIf) -> dict[str, Any]:
    prediction = answer.prediction
    return {
        "device": answer.device,
        "conditions": values_of(answer.conditions, *ASKED),
        **values_of(prediction, "batch_size", "capacity_bytes", *PEAK, "fits"),
        "recorded_peak_bytes": prediction.recorded_peak_bytes,
        "sentence": answer.sentence,
        "fails_at": as_json(prediction.fails_at),
        "enough_capacity_bytes": None if answer.enough is None else answer.enough.bytes,
        "largest_batch_size": answer.largest_batch_size,
        "method": prediction.method,
        "reproduced": as_json(prediction.reproduced),
        "assumptions": list(prediction.assumptions),
        "recorded": {
            "batch_sizes": list(answer.recorded_batch_sizes),
            "steps": list(answer.recorded_steps),
            "peak_bytes": answer.measured_peak_bytes,
        },
        "ledger": as_json(prediction.ledger),
    }


def _lines(answer: WhatIf) -> list[str]:
    prediction = answer.prediction
    recorded = ", ".join(map(str, answer.recorded_batch_sizes)) or "unknown"
    lines = [
        f"{clean(answer.device)}: batch size {_number(prediction.batch_size)}, capacity "
        f"{format_bytes(prediction.capacity_bytes)}"
    ]
    first = prediction.assumptions[:1] if prediction.elsewhere else ()
    lines += map(clean, first)
    if prediction.reproduced.of:
        lines.append(
            f"recorded: batch size {recorded}, median peak "
            f"{format_bytes(answer.measured_peak_bytes)}; replay: "
            f"{prediction.reproduced.addresses:,} of {prediction.reproduced.of:,} addresses"
        )
    if prediction.peak_bytes is not None:
        if prediction.recorded_peak_bytes is None:
            lines.append(f"predicted peak: {Interval.of(prediction)}, method: {prediction.method}")
        else:
            lines.append(f"recorded peak: {format_bytes(prediction.recorded_peak_bytes)}")
        is_said = prediction.fits or prediction.elsewhere
        reason = "" if is_said else f"; {why_not(prediction, answer.enough)}"
        lines.append(f"fits: {FITS[prediction.fits]}{reason}")
        largest = "none" if answer.largest_batch_size == 0 else _number(answer.largest_batch_size)
        of_training = " of training" if prediction.elsewhere else ""
        lines.append(f"largest batch size{of_training}: {largest}")
    return lines + [f"  {clean(one)}" for one in prediction.assumptions[len(first) :]]


def by_category(ledger: Sequence[LedgerRow]) -> collections.Counter[Category]:
    sums = collections.Counter[Category]()
    for row in ledger:
        sums[row.category] += row.bytes
    return sums


def _ledger_rows(prediction: Prediction) -> list[tuple[str, str]]:
    sums = by_category(prediction.ledger)
    return [
        (name.replace("_", " "), format_bytes(sums[name]))
        for name in reversed(CATEGORIES)
        if sums[name]
    ]


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def verdict_sentence(prediction: Prediction, enough: Enough | None) -> str:
    """The answer in one to three sentences; `enough` is a capacity at which a training fits that
    does not as asked."""
    peak, capacity = prediction.peak_bytes, prediction.capacity_bytes
    if peak is None:
        return (
            prediction.assumptions[0]
            if prediction.assumptions
            else ("Unknown: there is no prediction.")
        )
    if prediction.fits:
        recorded = prediction.recorded_peak_bytes
        of = "" if capacity is None else f" of {format_bytes(capacity)}"
        source = "" if recorded is None else ", recorded"
        return f"Fits: {format_bytes(peak if recorded is None else recorded)}{of}{source}"
    reason = why_not(prediction, enough)
    return f"Does not fit: {reason}" if prediction.fits is False else f"Unknown: {reason}"


def why_not(prediction: Prediction, enough: Enough | None) -> str:
    if prediction.elsewhere is not None:
        return prediction.elsewhere.rstrip(".")
    reason = (_needed if prediction.fits is False else _uncertain)(prediction)
    if enough is None:
        return reason
    return f"{reason}. At {format_bytes(enough.bytes)} it fits, with a reserve"


def _uncertain(prediction: Prediction) -> str:
    capacity, high = prediction.capacity_bytes, prediction.high_bytes
    span = Interval.of(prediction).span
    if capacity is None:
        return f"the capacity is unknown. Predicted peak: {span}"
    in_pieces = high is not None and high <= capacity
    why = "; free memory may be in pieces" if in_pieces else ""
    return f"{format_bytes(capacity)} may not be enough. Predicted peak: {span}{why}"


def _needed(prediction: Prediction) -> str:
    peak, capacity, failed = prediction.peak_bytes, prediction.capacity_bytes, prediction.fails_at
    needed = f"{format_bytes(peak)} needed, {format_bytes(capacity)} available"
    if failed is None:
        # Measured, where the simulation has another peak.
        is_plain = (peak or 0) > (capacity or 0) or not prediction.assumptions
        return needed if is_plain else prediction.assumptions[0].rstrip(".")
    # The op without the layers that it is in.
    op = None if failed.op is None else failed.op.rsplit("/", 1)[-1]
    known = [clean(text) for text in (op, failed.layer and f"layer {failed.layer}") if text]
    requested = (f"{format_bytes(failed.requested_bytes)} requested") + (
        f" by {', '.join(known)}" if known else ""
    )
    if not failed.is_in_pieces:
        return f"{needed}. {requested}, {format_bytes(failed.free_bytes)} free"
    if peak is not None and capacity is not None and peak <= capacity:
        needed = f"{format_bytes(peak)} of {format_bytes(capacity)} would be enough in one piece"
    return f"{needed}. No free chunk holds the {requested}"


def measured_snapshot(
    run: Run, device: str, steps: Sequence[int], batch_size: int | None
) -> Snapshot | None:
    """The training snapshot with the highest peak among those of the recorded steps of a device
    with a batch size.

    If none of these steps has a snapshot, the one nearest to the last of them; None without
    snapshots or steps."""
    candidates = [
        one
        for one in run.snapshots
        if one.device == device
        and one.phase == "train"
        and not one.at_failure
        and one.batch_size == batch_size
    ]
    if not candidates or not steps:
        return None
    recorded = [one for one in candidates if one.step in steps]
    if recorded:
        return max(recorded, key=lambda one: one.in_use_bytes)
    return min(candidates, key=lambda one: (abs(one.step - steps[-1]), -one.in_use_bytes))
