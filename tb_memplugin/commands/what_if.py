"""Answers what-if questions in Python and as text for the terminal."""

import re

from tb_memplugin.analysis.what_if import RunPredictor, WhatIf, devices_of
from tb_memplugin.commands.inspect_table import clean
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.model import Run
from tb_memplugin.model.tables import format_table
from tb_memplugin.model.units import UNITS, format_bytes
from tb_memplugin.prediction.conditions import PRECISIONS, SLOTS, Conditions
from tb_memplugin.prediction.predictor import MAX_BATCH_SIZE, pattern_error

MAX_CAPACITY_BYTES = 1 << 50
MAX_PATTERN_CHARACTERS = 1000
_CAPACITY = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([KMGTP]i?B|B)?", re.IGNORECASE)
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


def checked_conditions(
    batch_size: int | None,
    capacity: int | str | None,
    freeze: str | None,
    unfreeze: str | None,
    optimizer: str | None,
    precision: str | None,
) -> Conditions:
    """The conditions of a question.

    Raises:
        RequestError: One is malformed.
    """
    if batch_size is not None and not 1 <= batch_size <= MAX_BATCH_SIZE:
        raise RequestError(f"a batch size is an integer from 1 to {MAX_BATCH_SIZE:,}. Received: {batch_size}")
    for name, value, known in (("optimizer", optimizer, tuple(SLOTS)), ("precision", precision, PRECISIONS)):
        if value is not None and value.lower() not in known:
            raise RequestError(f"{name} is one of {', '.join(known)}. Received: {value!r:.80}")
    for name, pattern in (("freeze", freeze), ("unfreeze", unfreeze)):
        if pattern is not None and len(pattern) > MAX_PATTERN_CHARACTERS:
            raise RequestError(f"{name} has at most {MAX_PATTERN_CHARACTERS} characters. Received: {len(pattern)}")
    conditions = Conditions(
        batch_size=batch_size,
        capacity_bytes=None if capacity is None else capacity_bytes(capacity),
        freeze=freeze or None,
        unfreeze=unfreeze or None,
        optimizer=None if optimizer is None else optimizer.lower(),
        precision=None if precision is None else precision.lower(),
    )
    error = pattern_error(conditions)
    if error is not None:
        raise RequestError(error)
    return conditions


def capacity_bytes(capacity: int | str) -> int:
    """Bytes of a capacity such as ``"24GiB"``.

    Raises:
        RequestError: It is no size from 1 B to 1 PiB.
    """
    match = _CAPACITY.fullmatch(str(capacity).strip())
    size: int | None = None
    if match is not None:
        unit = (match[2] or "B").upper().replace("IB", "B")
        power = [name.upper().replace("IB", "B") for name in UNITS].index(unit)
        size = round(float(match[1]) * float(1024**power))
    if size is None or not 1 <= size <= MAX_CAPACITY_BYTES:
        raise RequestError(f"a capacity is a size such as 24GiB, at most 1 PiB. Received: {capacity!r:.80}")
    return size


def device_of(run: Run, device: str | None) -> str:
    """The device of a question.

    Raises:
        NotFoundError: The run has no such device.
    """
    devices = devices_of(run)
    if not devices or (device is not None and device not in devices):
        raise NotFoundError(
            f"no device {device!r:.80} in this run; available: {', '.join(devices) or 'none'}"
            if device is not None
            else "this run has no records of a device's memory"
        )
    return device or devices[0]


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
        lines.append(f"largest batch size that passes: {_number(answer.largest_batch_size)}")
    lines += [f"  {clean(sentence)}" for sentence in prediction.assumptions]
    if prediction.ledger:
        sums: dict[str, int] = {}
        for row in prediction.ledger:
            word = row.category.replace("_", " ")
            sums[word] = sums.get(word, 0) + row.bytes
        rows = [[name, format_bytes(size)] for name, size in sorted(sums.items(), key=lambda item: -item[1])]
        lines += ["", format_table(["category at the predicted peak", "bytes"], rows)]
    return "\n".join(lines)


def _failure(answer: WhatIf) -> str:
    failed = answer.prediction.fails_at
    if failed is None:
        return ""
    where = ", ".join(clean(text) for text in (failed.op, failed.layer and f"layer {failed.layer}") if text)
    return f"; fails at a request of {format_bytes(failed.requested_bytes)}{f' by {where}' if where else ''}"


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
