"""The answer to a question about other conditions."""

import dataclasses
from typing import Literal, TypeAlias

from tb_memplugin.model import LedgerRow
from tb_memplugin.model.units import format_bytes
from tb_memplugin.prediction.history import FailedRequest
from tb_memplugin.prediction.reproduction import Reproduced

Method: TypeAlias = Literal["recorded", "replay", "two_sizes", "estimate", "unknown"]


@dataclasses.dataclass(frozen=True, repr=False)
class Prediction:
    """What a training would need under some conditions.

    Attributes:
        batch_size, capacity_bytes: The conditions' batch size and capacity, or the recorded ones; None if unknown.
        peak_bytes, low_bytes, high_bytes: Predicted peak of bytes in use and its range; None if unknown.
        fits: True if every simulated step passes, with the most bytes of the range, and leaves some percent of the
            capacity free; False if every simulation fails, even with the least bytes; else None.
        fails_at: The request that fails, None if none does or it is unknown.
        method: ``recorded``: the peaks of recorded steps; ``replay``: all sizes are exact; ``two_sizes``: some follow
            from two recorded batch sizes; ``estimate``: some have a range; ``unknown``: no prediction.
        reproduced: How much of the recorded steps their replay reproduced.
        assumptions: What the prediction assumes or why there is none, as sentences.
        ledger: Predicted bytes at the peak by owner; sums to `peak_bytes`.
    """

    batch_size: int | None
    capacity_bytes: int | None
    peak_bytes: int | None
    low_bytes: int | None
    high_bytes: int | None
    fits: bool | None
    fails_at: FailedRequest | None
    method: Method
    reproduced: Reproduced
    assumptions: tuple[str, ...]
    ledger: tuple[LedgerRow, ...] = ()

    def __repr__(self) -> str:
        size = "unknown" if self.batch_size is None else f"{self.batch_size:,}"
        return (
            f"<{type(self).__name__} batch size {size}, peak {format_bytes(self.peak_bytes)} of "
            f"{format_bytes(self.capacity_bytes)}, fits={self.fits}, method={self.method}>"
        )
