"""From file to ledger: one traced ResNet50 step, against XProf's memory_profile converter on the
same file.

Needs TensorFlow, Keras and xprof. Prints milliseconds, their ratio and its limit.

usage: python tests/benchmarks/bench_ledger.py [--smallest]
"""

import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

from limits import finish, parser_of, print_limit

ROUNDS = 9
MOST_OF_XPROF = 0.5
"""Most milliseconds, as a share of XProf's."""


def traced_step(directory: pathlib.Path, smallest: bool) -> Any:
    """Trains ResNet50, or one layer, on the CPU's BFC allocator, and keeps the profile of one step
    in `directory`.

    Returns:
        What the observer knew.
    """
    import keras
    import trainings_child as child

    import tb_memplugin
    from tb_memplugin.recorder.helper import Helper

    if smallest:
        layers = [
            keras.Input((64, 64, 3)),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
        model = keras.Sequential(layers)
    else:
        model = keras.applications.ResNet50(
            weights=None, classifier_activation=None, input_shape=(64, 64, 3), classes=10
        )
    seen: list[Any] = []
    records = Helper.records

    def noted(helper: Helper, traced: Any) -> Any:
        seen.extend(traced.facts.values())
        return records(helper, traced)

    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    callback = tb_memplugin.MemoryCallback(str(directory), trace_steps=[3], keep_profile=True)
    with mock.patch.object(Helper, "records", noted):
        model.fit(
            child.repeated(child.noise(4, 64, 64, 3), child.classes(4), 6),
            verbose=0,
            callbacks=[callback],
        )
        callback.close()
    return seen[-1]


def milliseconds(rounds: int, *actions: Callable[[], Any]) -> list[float]:
    """The least of some rounds for each action, in turns, so that what else the machine does falls
    on all alike."""
    best = [float("inf")] * len(actions)
    for _ in range(rounds):
        for number, action in enumerate(actions):
            start = time.perf_counter()
            action()
            best[number] = min(best[number], time.perf_counter() - start)
    return [1000 * seconds for seconds in best]


def main() -> None:
    smallest = parser_of(__doc__).parse_args().smallest
    with tempfile.TemporaryDirectory() as folder:
        facts = traced_step(pathlib.Path(folder), smallest)
        (path,) = pathlib.Path(folder).rglob("*.xplane.pb")
        from xprof.convert import raw_to_tool_data

        from tb_memplugin.attribution import AttributedStep
        from tb_memplugin.importers import read_traces

        def ours() -> None:
            for trace in read_traces(path.read_bytes()):
                assert AttributedStep(trace, facts, step=0, phase="train", wall_time=0.0).snapshot

        def xprof() -> None:
            # The converter keeps what it made of a file beside it.
            for made in path.parent.iterdir():
                if made != path:
                    made.unlink()
            raw_to_tool_data.xspace_to_tool_data([str(path)], "memory_profile", {})

        (trace, *_) = read_traces(path.read_bytes())
        mine, theirs = milliseconds(2 if smallest else ROUNDS, ours, xprof)
        print(f"profile: {path.stat().st_size} bytes, {len(trace)} allocator events")
        print(f"file to ledger {mine:.1f} ms, XProf {theirs:.1f} ms")
        print_limit("file to ledger, against XProf's converter", mine / theirs, MOST_OF_XPROF)
    finish()


if __name__ == "__main__":
    main()
