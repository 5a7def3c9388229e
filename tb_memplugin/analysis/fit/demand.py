"""How much of a device's peak is demand, how much rounding, and how much more its pool takes. Pure."""

import dataclasses
from typing import Any

from tb_memplugin.model import Run
from tb_memplugin.model.units import format_bytes
from tb_memplugin.prediction.demand import Demand, demand_of, growing_bytes, one_region_bytes
from tb_memplugin.prediction.prediction import reproduce


def peak_demand(run: Run, device: str) -> Demand | None:
    """The parts of the highest peak among a device's recorded steps; None without one that its replay reproduces."""
    of_device = [one for one in run.requests if one.device == device]
    found = [(demand_of(one), one) for one in of_device]
    for demand, requests in sorted(found, key=lambda one: -one[0].peak_bytes):
        if reproduce(requests).whole:
            return dataclasses.replace(
                demand, one_region_bytes=one_region_bytes(requests), growing_bytes=growing_bytes(requests)
            )
    return None


def demand_sentences(demand: Demand) -> tuple[str, ...]:
    """What the parts mean, as sentences."""
    parts = (
        f"Of the peak of step {demand.step} ({demand.phase}), {format_bytes(demand.peak_bytes)}, "
        f"{format_bytes(demand.demand_bytes)} is live at once: no allocator needs less. Rounding to 256 bytes adds "
        f"{format_bytes(demand.rounding_bytes)}, unsplit remainders of chunks {format_bytes(demand.unsplit_bytes)}."
    )
    pool = f"The pool has {format_bytes(demand.pool_bytes)}"
    if demand.one_region_bytes is None or demand.growing_bytes is None:
        return parts, f"{pool}."
    whole, growing = format_bytes(demand.one_region_bytes), format_bytes(demand.growing_bytes)
    return parts, (
        f"{pool}. Replayed in an empty pool, the step needs {whole} if that is reserved as a whole, and {growing} if "
        "it grows by regions."
    )


def describe_demand(demand: Demand | None) -> dict[str, Any] | None:
    """The parts and their sentences as a JSON object."""
    if demand is None:
        return None
    return {**dataclasses.asdict(demand), "sentences": list(demand_sentences(demand))}
