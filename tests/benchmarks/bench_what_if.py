"""A what-if curve over a step of 10,000 events, and the largest batch size.

Needs neither TensorFlow nor a GPU. Prints seconds of CPU time (it is one thread) and the limit.

usage: python tests/benchmarks/bench_what_if.py [--smallest]
"""

import dataclasses
import time

import numpy as np
from bench_replay import EVENTS, SMALLEST_EVENTS, step
from limits import finish, parser_of, print_limit
from requests_cases import make_traced

from tb_memplugin.analysis.fit.what_if import curve_sizes
from tb_memplugin.attribution.trace.lifetimes import chunks
from tb_memplugin.model import StepRequests
from tb_memplugin.prediction.conditions import Conditions
from tb_memplugin.prediction.prediction import reproduce
from tb_memplugin.prediction.predictor import Predictor

LIMIT_SECONDS = 2.0


def recorded(events: int) -> StepRequests:
    """The requests of a synthetic step, of which half the sizes grow with the batch."""
    trace, start, _ = step(events)
    found = chunks(trace)
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
    for row in np.flatnonzero(columns["birth"] < 0).tolist():
        requested[row] = by_address[int(columns["address"][row])]
    count = len(requested)
    template = make_traced()[3].requests
    return dataclasses.replace(
        template,
        events=len(trace),
        capacity_bytes=16 << 30,
        requested=requested,
        batch_power=np.where((columns["birth"] >= 0) & (np.arange(count) % 2 == 0), 1, 0),
        owner=np.zeros(count, np.int64),
        op=np.full(count, -1),
        region_address=start.region_address,
        region_bytes=start.region_bytes,
        added_address=np.empty(0, np.int64),
        added_bytes=np.empty(0, np.int64),
        **columns,
    )


def main() -> None:
    requests = recorded(SMALLEST_EVENTS if parser_of(__doc__).parse_args().smallest else EVENTS)
    began = time.process_time()
    replay = reproduce(requests)
    print(f"{requests.events} events; replay {time.process_time() - began:.3f} s, {replay.addresses} of {replay.of}")
    assert replay.whole
    predictor = Predictor((requests,))
    assert predictor.reproduced.whole
    began = time.process_time()
    sizes = curve_sizes(predictor, 1, 32)
    assert all(predictor.peaks(Conditions(batch_size=size)).peak_bytes for size in sizes)
    print_limit(f"curve of {len(sizes)} batch sizes", time.process_time() - began, LIMIT_SECONDS, "s", any_size=True)
    began = time.process_time()
    largest = predictor.largest_batch_size(16 << 30)
    print(f"largest batch size {largest}: {time.process_time() - began:.2f} s")
    finish()


if __name__ == "__main__":
    main()
