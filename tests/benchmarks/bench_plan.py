"""A plan for a model of 400 layers that must halve its peak.

Needs neither TensorFlow nor a GPU. Prints seconds of CPU time (it is one thread) and the limit.

usage: python tests/benchmarks/bench_plan.py [--smallest]
"""

import pathlib
import tempfile
import time
from typing import Any

from limits import finish, parser_of, print_limit
from requests_cases import Program, Traced, empty_pool, write_run

import tb_memplugin
from tb_memplugin.fit import plan_for
from tb_memplugin.schema import Category, ChunkOwner

LIMIT_SECONDS = 2.0
OUTPUT_BYTES = 400_000
"""Of each layer for one example."""


class Deep(Program):
    """A training that frees each layer's result after its backward pass, and its gradients after
    the update."""

    def step(self, step: int, *, first: bool = False, explored: int = 0) -> Traced:
        started = self._simulator.map(empty_pool(self._capacity))
        for chunk in self._alive:
            chunk.birth, chunk.op = -1, None
        self._events = 0
        chunks = list(self._alive)

        def add(size: int, path: str, category: Category, op: str, power: int = 1) -> Any:
            trainable = (
                None if category in ("activations", "activation_gradients", "workspace") else True
            )
            chunks.append(self._request(size, ChunkOwner(path, category, trainable), power, op))
            return chunks[-1]

        if first:
            for path, _, parameters, _ in self._layers:
                for slot in ("m", "v"):
                    add(4 * parameters, path, "optimizer_state", f"adam/{path}/{slot}", 0)
        saved = []
        for path, _, _, output in self._layers:
            self._free(add(output * self._batch, path, "workspace", f"{path}/forward"))
            saved.append(
                [
                    add(output * self._batch, path, "activations", f"{path}/{name}")
                    for name in ("mean", "out")
                ]
            )
        at_peak = list(self._alive)
        peak, before = self._simulator.in_use_bytes, None
        for (path, _, parameters, output), results in zip(
            self._layers[::-1], saved[::-1], strict=True
        ):
            op = f"gradient_tape/{path}"
            gradient = add(output * self._batch, path, "activation_gradients", f"{op}/inputs")
            weights = add(4 * parameters, path, "weight_gradients", f"{op}/weights", 0)
            if self._simulator.in_use_bytes > peak:
                peak, at_peak = self._simulator.in_use_bytes, list(self._alive)
            for chunk in (*results, weights, *([] if before is None else [before])):
                self._free(chunk)
            before = gradient
        self._free(before)
        requests = self._requests(step, first, chunks, started, self._simulator.map(started))
        return Traced(requests, self._snapshot(step, peak, at_peak), self._simulator.in_use_bytes)


def main() -> None:
    count = parser_of(__doc__, layers=(400, 40)).parse_args().layers
    # Sizes differ, so that no two choices of segments are the same.
    layers = [
        (f"net/layer{at}", True, 2_000 + 16 * at, OUTPUT_BYTES + 512 * (at % 7))
        for at in range(count)
    ]
    with tempfile.TemporaryDirectory() as directory:
        write_run(
            pathlib.Path(directory) / "deep",
            capacity=16 << 30,
            layers=layers,
            units=True,
            kind=Deep,
        )
        run = tb_memplugin.load(directory)["deep"]
        (device,) = run.samples.devices
        recorded = plan_for(run, device, 1 << 40)
        assert recorded.peak_bytes is not None
        began = time.process_time()
        plan = plan_for(run, device, recorded.peak_bytes // 2)
        seconds = time.process_time() - began
    events = max(one.events for one in run.requests)
    what = next(option.sentence for option in plan.options if option.fits)
    simulated = f"{len(plan.options)} changes and {len(plan.curve)} points simulated"
    print(f"{count} layers, {events} events: {what}, {simulated}")
    assert plan.fits and plan.segments, plan
    print_limit("plan", seconds, LIMIT_SECONDS, "s", any_size=True)
    finish()


if __name__ == "__main__":
    main()
