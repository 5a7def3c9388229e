"""The replay of a step of 10,000 allocator events, from the memory maps round it to the map at its peak.

Needs neither TensorFlow nor a GPU. Prints seconds of CPU time (it is one thread) and the limit.

usage: python tests/benchmarks/bench_replay.py [--smallest]
"""

import random
import time

from limits import finish, parser_of, print_limit
from map_cases import free_regions
from trace_cases import Recorder

from tb_memplugin.allocator.replay import TraceReplay, between_maps
from tb_memplugin.allocator.simulator import Simulator
from tb_memplugin.attribution.results.ledger import peak_event
from tb_memplugin.model import MISSING, MemoryMap
from tb_memplugin.model.trace import AllocationTrace

EVENTS = 10_000
SMALLEST_EVENTS = 500
BEFORE = 1_000
"""Chunks in use when the step begins: weights, slots, handles."""
ROUNDS = 7
LIMIT_SECONDS = 0.15


def step(count: int = EVENTS) -> tuple[AllocationTrace, MemoryMap, MemoryMap]:
    """A step like a convolutional network's: results pile up and are freed again, temporaries come and go."""
    draw = random.Random(0)
    empty = free_regions((0x7F00_0000_0040, 8 << 30))
    simulator = Simulator(empty)
    sizes = [256, 512, 1024, 4096, 65_536, 802_816, 3_211_264]

    def allocate() -> tuple[int, int, int]:
        requested = draw.choice(sizes) - draw.randrange(200)
        address = simulator.choose(requested)
        assert address is not None
        before = simulator.in_use_bytes
        assert simulator.allocate(address, requested)
        return address, requested, simulator.in_use_bytes - before

    for _ in range(BEFORE):
        allocate()
    start, events = simulator.map(empty), Recorder(simulator.in_use_bytes)
    live: list[tuple[int, int, int]] = []
    for number in range(count):
        left = count - number
        grows = len(live) < left and (len(live) < 2 or draw.random() < 0.7 - 0.4 * (number > count // 2))
        if grows:
            live.append(allocate())
            address, requested, allocated = live[-1]
            events.event(1, address, requested, "op", "output", allocated=allocated)
        else:
            address, _, allocated = live.pop(draw.randrange(max(0, len(live) - 40), len(live)))
            assert simulator.free(address)
            events.event(-1, address, MISSING, allocated=allocated)
    return events.trace(), start, simulator.map(empty)


def main() -> None:
    count = SMALLEST_EVENTS if parser_of(__doc__).parse_args().smallest else EVENTS
    trace, start, end = step(count)
    seconds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        part = between_maps(trace, start, end)
        replay = TraceReplay(part, peak_event(part)).check
        seconds.append(time.process_time() - began)
        assert len(part) == count and (replay.addresses, replay.chunks) == (replay.of_addresses, replay.of_chunks)
    print(f"{len(trace)} events, {len(start)} chunks at the start")
    print_limit("replay", min(seconds), LIMIT_SECONDS, "s", any_size=True)
    finish()


if __name__ == "__main__":
    main()
