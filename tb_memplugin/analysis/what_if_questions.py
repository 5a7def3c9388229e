"""Questions to `what_if`, from the terminal or a request: their conditions and device. Pure."""

from tb_memplugin.analysis.what_if import devices_of
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.model import Run
from tb_memplugin.model.units import parse_bytes
from tb_memplugin.prediction.conditions import MAX_GLOB_CHARACTERS, PRECISIONS, SLOTS, Conditions
from tb_memplugin.prediction.predictor import MAX_BATCH_SIZE

MAX_CAPACITY_BYTES = 1 << 50
MOST_GIB = MAX_CAPACITY_BYTES >> 30
"""A number without a unit up to this one is a number of GiB."""


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
        message = f"a batch size is an integer from 1 to {MAX_BATCH_SIZE:,}. Received: {batch_size}"
        raise RequestError(message, "batch_size")
    for name, value, known in (("optimizer", optimizer, tuple(SLOTS)), ("precision", precision, PRECISIONS)):
        if value is not None and value.lower() not in known:
            raise RequestError(f"{name} is one of {', '.join(known)}. Received: {value!r:.80}", name)
    for name, globs in (("freeze", freeze), ("unfreeze", unfreeze)):
        if globs is not None and len(globs) > MAX_GLOB_CHARACTERS:
            raise RequestError(f"{name} has at most {MAX_GLOB_CHARACTERS:,} characters. Received: {len(globs):,}", name)
    return Conditions(
        batch_size=batch_size,
        capacity_bytes=None if capacity is None else capacity_bytes(capacity),
        freeze=freeze or None,
        unfreeze=unfreeze or None,
        optimizer=None if optimizer is None else optimizer.lower(),
        precision=None if precision is None else precision.lower(),
    )


def capacity_bytes(capacity: int | str, name: str = "capacity") -> int:
    """Bytes of a capacity, or of what else has this name, such as ``"24GiB"``; in a text, ``"24"`` means 24 GiB.

    Raises:
        RequestError: It is no size from 1 B to 1 PiB.
    """
    size = parse_bytes(str(capacity))
    if isinstance(capacity, str) and size is not None and size <= MOST_GIB:
        # No allocator has a limit of so few bytes.
        size = parse_bytes(f"{capacity}GiB") or size
    if size is None or not 1 <= size <= MAX_CAPACITY_BYTES:
        raise RequestError(f"a {name} is a size such as 24GiB, at most 1 PiB. Received: {capacity!r:.80}", name)
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
