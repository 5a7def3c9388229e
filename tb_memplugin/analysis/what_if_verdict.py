"""Whether a training fits under other conditions, as a sentence that says why not, and what would be enough. Pure."""

from tb_memplugin.model.text import clean
from tb_memplugin.model.units import format_bytes
from tb_memplugin.prediction.history import FailedRequest
from tb_memplugin.prediction.prediction import Prediction


def verdict_sentence(prediction: Prediction, enough_bytes: int | None) -> str:
    """The answer in one or two sentences.

    Args:
        prediction: The prediction.
        enough_bytes: A capacity at which a training fits that does not fit into the asked one; None if unknown.
    """
    peak, capacity = prediction.peak_bytes, prediction.capacity_bytes
    if peak is None:
        return prediction.assumptions[0] if prediction.assumptions else "Unknown: there is no prediction."
    if prediction.fits:
        return f"Fits: {format_bytes(peak)}" + ("" if capacity is None else f" of {format_bytes(capacity)}")
    if prediction.fits is False:
        return f"Does not fit: {why_not(prediction, enough_bytes)}"
    span = f"{format_bytes(prediction.low_bytes)} to {format_bytes(prediction.high_bytes)}"
    limit = "the capacity is unknown" if capacity is None else f"{format_bytes(capacity)} may not be enough"
    return f"Unknown: {limit}; predicted peak {span}"


def why_not(prediction: Prediction, enough_bytes: int | None) -> str:
    """Why a training does not fit, and the capacity at which it fits."""
    peak, capacity, failed = prediction.peak_bytes, prediction.capacity_bytes, prediction.fails_at
    needed = f"{format_bytes(peak)} needed, {format_bytes(capacity)} available"
    if failed is None:
        reason = needed
    elif not failed.is_in_pieces:
        size = format_bytes(failed.requested_bytes)
        reason = f"{needed}. {size} requested{_requester(failed)}, {format_bytes(failed.free_bytes)} free"
    elif peak is not None and capacity is not None and peak <= capacity:
        reason = f"{format_bytes(peak)} of {format_bytes(capacity)} would be enough, but {_no_chunk(failed)}"
    else:
        reason = f"{needed}, and {_no_chunk(failed)}"
    return reason + ("" if enough_bytes is None else f". At {format_bytes(enough_bytes)} it fits")


def _no_chunk(failed: FailedRequest) -> str:
    return f"no free chunk holds the {format_bytes(failed.requested_bytes)} requested{_requester(failed)}"


def _requester(failed: FailedRequest) -> str:
    """The op, without the layers that it is in, and its layer."""
    op = None if failed.op is None else failed.op.rsplit("/", 1)[-1]
    known = [clean(text) for text in (op, failed.layer and f"layer {failed.layer}") if text]
    return f" by {', '.join(known)}" if known else ""
