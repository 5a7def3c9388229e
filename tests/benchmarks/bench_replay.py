"""A step of 10,000 allocator events: its replay, from the memory maps round it to the map at its
peak; a what-if curve over it, and the largest batch size.

Needs neither TensorFlow nor a GPU. Prints seconds of CPU time (it is one thread) and the limits.

usage: python tests/benchmarks/bench_replay.py [--smallest]
"""

import dataclasses
import random
import time

import numpy as np
from limits import finish, parser_of, print_limit
from map_cases import free_regions
from requests_cases import make_traced
from trace_cases import Recorder

from tb_memplugin.allocator import Simulator, TraceReplay, between_maps
from tb_memplugin.attribution import event_chunks, peak_event
from tb_memplugin.fit import Conditions, Predictor, curve_sizes
from tb_memplugin.schema import MISSING, AllocationTrace, MemoryMap, StepRequests

BEFORE = 1_000
"""Chunks in use when the step begins: weights, slots, handles."""
ROUNDS = 7
REPLAY_SECONDS, CURVE_SECONDS = 0.15, 2.0


def step(count: int) -> tuple[AllocationTrace, MemoryMap, MemoryMap]:
    """A step like a convolutional network's: results pile up and are freed again, temporaries come
    and go."""
    draw = random.Random(0)
    empty = free_regions((0x7F00_0000_0040, 8 << 30))
    simulator = Simulator(empty)
    sizes = [256, 512, 1024, 4096, 65_536, 802_816, 3_211_264]

    def allocate() -> tuple[int, int, int]:
        requested = draw.choice(sizes) - draw.randrange(200)
        before = simulator.in_use_bytes
        address = simulator.request(requested)
        assert address is not None
        return address, requested, simulator.in_use_bytes - before

    for _ in range(BEFORE):
        allocate()
    start, events = simulator.map(empty), Recorder(simulator.in_use_bytes)
    live: list[tuple[int, int, int]] = []
    for number in range(count):
        left = count - number
        if len(live) < left and (
            len(live) < 2 or draw.random() < 0.7 - 0.4 * (number > count // 2)
        ):
            live.append(allocate())
            address, requested, allocated = live[-1]
            events.event(1, address, requested, "op", "output", allocated=allocated)
        else:
            address, _, allocated = live.pop(draw.randrange(max(0, len(live) - 40), len(live)))
            assert simulator.free(address)
            events.event(-1, address, MISSING, allocated=allocated)
    return events.trace(), start, simulator.map(empty)


def recorded(trace: AllocationTrace, start: MemoryMap) -> StepRequests:
    """The requests of a step, of which half the sizes grow with the batch."""
    found = event_chunks(trace)
    used = start.requested_bytes >= 0
    old = ~np.isin(start.address[used], found.address[found.birth < 0])
    columns = {
        "address": np.append(found.address, start.address[used][old]),
        "allocated": np.append(found.allocated, start.bytes[used][old]),
        "birth": np.append(found.birth, np.full(int(old.sum()), -1)),
        "death": np.append(found.death, np.full(int(old.sum()), len(trace))),
    }
    by_address = dict(zip(start.address.tolist(), start.requested_bytes.tolist(), strict=True))
    requested = np.append(found.requested, start.requested_bytes[used][old])
    before = columns["birth"] < 0
    requested[before] = [by_address[address] for address in columns["address"][before].tolist()]
    count = len(requested)
    template = make_traced()[3].requests
    return dataclasses.replace(
        template,
        events=len(trace),
        capacity_bytes=16 << 30,
        requested=requested,
        batch_power=np.where(~before & (np.arange(count) % 2 == 0), 1, 0),
        owner=np.zeros(count, np.int64),
        op=np.full(count, -1),
        region_address=start.region_address,
        region_bytes=start.region_bytes,
        added_address=np.empty(0, np.int64),
        added_bytes=np.empty(0, np.int64),
        **columns,
    )


def main() -> None:
    count = parser_of(__doc__, events=(10_000, 500)).parse_args().events
    trace, start, end = step(count)
    seconds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        part = between_maps(trace, start, end)
        replay = TraceReplay(part, peak_event(part)).check
        seconds.append(time.process_time() - began)
        assert len(part) == count and (replay.addresses, replay.chunks) == (
            replay.of_addresses,
            replay.of_chunks,
        )
    print(f"{len(trace)} events, {len(start)} chunks at the start")
    print_limit("replay", min(seconds), REPLAY_SECONDS, "s", any_size=True)
    predictor = Predictor((recorded(trace, start),))
    assert predictor.reproduced.whole
    began = time.process_time()
    sizes = curve_sizes(predictor, 1, 32)
    assert all(predictor.peaks(Conditions(batch_size=size)).peak.typical_bytes for size in sizes)
    print_limit(
        f"curve of {len(sizes)} batch sizes",
        time.process_time() - began,
        CURVE_SECONDS,
        "s",
        any_size=True,
    )
    began = time.process_time()
    largest = predictor.largest_batch_size(Conditions(capacity_bytes=16 << 30))
    print(f"largest batch size {largest}: {time.process_time() - began:.2f} s")
    finish()


if __name__ == "__main__":
    main()
