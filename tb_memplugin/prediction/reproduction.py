"""Replays a recorded step as it was: only what reproduces the record may predict anything. Pure."""

import dataclasses

from tb_memplugin.allocator.simulator import Simulator
from tb_memplugin.model import StepRequests
from tb_memplugin.prediction.sized_steps import event_order, start_map


@dataclasses.dataclass(frozen=True)
class Reproduced:
    """How much of recorded steps their replay reproduced: allocations at the recorded address, of all allocations."""

    addresses: int
    of: int

    @property
    def whole(self) -> bool:
        """Whether every allocation is at its recorded address."""
        return self.addresses == self.of


def reproduce(requests: StepRequests) -> Reproduced:
    """Replay a recorded step from its own memory map."""
    simulator = Simulator(start_map(requests))
    added = list(zip(requests.added_address.tolist(), requests.added_bytes.tolist(), strict=True))
    address, allocated, requested = (
        column.tolist() for column in (requests.address, requests.allocated, requests.requested)
    )
    same = allocations = 0
    for entry in event_order(requests):
        if entry < 0:
            simulator.free(address[-1 - entry])
            continue
        allocations += 1
        place = address[entry]
        if simulator.choose(requested[entry]) is None:
            for region in [region for region in added if region[0] <= place < region[0] + region[1]]:
                simulator.add_region(*region)
                added.remove(region)
        same += simulator.follow(place, requested[entry], allocated[entry])
    return Reproduced(same, allocations)
