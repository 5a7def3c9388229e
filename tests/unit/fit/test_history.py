"""A training simulated from its first step on."""

import itertools

import pytest
from reading_cases import MIB
from requests_cases import CAPACITY, Program, empty_pool

from tb_memplugin.allocator.rules import PoolRules
from tb_memplugin.allocator.simulator import Simulator
from tb_memplugin.fit.history import History
from tb_memplugin.fit.sized_steps import as_recorded
from tb_memplugin.schema import ChunkOwner, StepRequests

TENSORS = ChunkOwner("net/conv1", "activations", True)


class Holes(Program):
    """A training whose first step frees chunks of one size in several regions and takes some of them again."""

    def first_step(self) -> StepRequests:
        started = self._simulator.map(empty_pool(CAPACITY))
        older = list(self._alive)
        for chunk in older:
            chunk.birth = -1
        self._events = 0
        tensors = [self._request(MIB, TENSORS) for _ in range(30)]
        for chunk in tensors[::3]:
            self._free(chunk)
        tensors += [self._request(MIB, TENSORS) for _ in range(4)]
        return self._requests(0, True, older + tensors, started, self._simulator.map(started))


def test_regions_lie_where_the_recorded_pool_grew(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a device that places every second region above the older ones
    with monkeypatch.context() as odd:
        place, sides = Simulator._free_address, itertools.cycle([True, False])
        odd.setattr(Simulator, "_free_address", lambda self, size, _: place(self, size, next(sides)))
        first = Holes().first_step()
    above = first.added_address > first.region_address.max()
    assert above.any() and not above.all()
    history = History([as_recorded(first)], PoolRules(CAPACITY))
    history.run([0])
    lasting = first.death == first.events
    used = {address for address, _, requested in history._simulator.chunks() if requested >= 0}
    assert used == set(first.address[lasting].tolist())


class Bursts(Program):
    """A training whose first step makes variables with large temporaries, each of which is freed at once."""

    def first_step(self, at_once: int, later: int) -> StepRequests:
        started = self._simulator.map(empty_pool(CAPACITY))
        chunks = list(self._alive)
        for chunk in chunks:
            chunk.birth = -1
        self._events = 0
        for size, freed in ((MIB, False), (at_once, True), (later, False), (MIB, False), (3 * MIB, False)):
            chunks.append(self._request(size, TENSORS))
            if freed:
                self._free(chunks[-1])
        return self._requests(0, True, chunks, started, self._simulator.map(started))


@pytest.mark.parametrize("later", [2 * MIB, 40 * MIB])
def test_an_allocation_that_is_freed_at_once_can_be_the_peak_or_grow_the_pool(later: int) -> None:
    program = Bursts()
    first = program.first_step(at_once=20 * MIB, later=later)
    history = History([as_recorded(first)], PoolRules(CAPACITY))
    outcome = history.run([0])
    assert outcome.peaks[0].bytes == program._simulator.peak_bytes
    assert history._simulator.chunks() == program._simulator.chunks()
