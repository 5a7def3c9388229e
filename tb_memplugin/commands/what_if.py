"""Answers what-if questions in Python and as text for the terminal."""

import collections

from tb_memplugin.analysis.what_if import RunPredictor, WhatIf
from tb_memplugin.analysis.what_if_questions import checked_conditions, device_of
from tb_memplugin.model import CATEGORIES, Category, Run
from tb_memplugin.model.tables import format_table
from tb_memplugin.model.text import clean
from tb_memplugin.model.units import format_bytes

_FITS = {True: "yes", False: "no", None: "unknown"}


def what_if(
    run: Run,
    *,
    batch_size: int | None = None,
    capacity: int | str | None = None,
    freeze: str | None = None,
    unfreeze: str | None = None,
    optimizer: str | None = None,
    precision: str | None = None,
    device: str | None = None,
) -> WhatIf:
    """Predict what a recorded run would need under other conditions.

    The recorded steps are replayed first; only if that reproduces every address is anything predicted.

    Args:
        run: A run, as ``tb_memplugin.load(log_dir)[name]`` returns it.
        batch_size: Examples in a batch.
        capacity: The allocator's limit, in bytes or as a text such as ``"24GiB"``.
        freeze, unfreeze: Regular expressions, searched for in the paths of layers.
        optimizer: Name of a Keras optimizer in lower case, or ``momentum`` for SGD with momentum.
        precision: ``float32``, ``mixed_float16`` or ``mixed_bfloat16``.
        device: Device of the run; by default the first accelerator with recorded requests.

    Returns:
        The answer. Its `prediction.method` is ``unknown`` if nothing can be predicted; `prediction.assumptions` then
        says why.

    Raises:
        RequestError: A condition is malformed.
        NotFoundError: The run has no such device.
    """
    conditions = checked_conditions(batch_size, capacity, freeze, unfreeze, optimizer, precision)
    return RunPredictor(run, device_of(run, device)).what_if(conditions)


def format_what_if(answer: WhatIf) -> str:
    """The answer as text."""
    prediction = answer.prediction
    recorded = ", ".join(map(str, answer.recorded_batch_sizes)) or "unknown"
    lines = [
        f"{clean(answer.device)}: batch size {_number(prediction.batch_size)}, "
        f"capacity {format_bytes(prediction.capacity_bytes)}",
        f"recorded: batch size {recorded}, median peak {format_bytes(answer.measured_peak_bytes)}; replay: "
        f"{prediction.reproduced.addresses:,} of {prediction.reproduced.of:,} addresses",
    ]
    if prediction.peak_bytes is not None:
        span = f"{format_bytes(prediction.low_bytes)} to {format_bytes(prediction.high_bytes)}"
        lines.append(f"predicted peak: {format_bytes(prediction.peak_bytes)} ({span}), method: {prediction.method}")
        lines.append(f"fits: {_FITS[prediction.fits]}{_failure(answer)}")
        lines.append(f"largest batch size that passes: {_largest(answer)}")
    lines += [f"  {clean(sentence)}" for sentence in prediction.assumptions]
    if prediction.ledger:
        sums = collections.Counter[Category]()
        for row in prediction.ledger:
            sums[row.category] += row.bytes
        rows = [[name.replace("_", " "), format_bytes(sums[name])] for name in reversed(CATEGORIES) if sums[name]]
        lines += ["", format_table(["category at the predicted peak", "bytes"], rows)]
    return "\n".join(lines)


def _failure(answer: WhatIf) -> str:
    failed = answer.prediction.fails_at
    if failed is None:
        return ""
    where = ", ".join(clean(text) for text in (failed.op, failed.layer and f"layer {failed.layer}") if text)
    return f"; fails at a request of {format_bytes(failed.requested_bytes)}{f' by {where}' if where else ''}"


def _largest(answer: WhatIf) -> str:
    return "none" if answer.largest_batch_size == 0 else _number(answer.largest_batch_size)


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
