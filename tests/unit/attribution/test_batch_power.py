"""How sizes follow from the batch where the allocator's event has no shape, as on a GPU."""

import dataclasses
from typing import Any

import pytest
from test_batch import TABLE
from trace_cases import FACTS, Recorder, graph

from tb_memplugin.attribution.batch import Traced, batch_size
from tb_memplugin.attribution.batch_power import BatchPowers
from tb_memplugin.attribution.classifier import Classifier
from tb_memplugin.attribution.step_chunks import step_chunks
from tb_memplugin.model import UNKNOWN_POWER
from tb_memplugin.model.trace import OpFact

BATCH = 16


@pytest.mark.parametrize(
    ("shapes", "dtypes", "size", "power"),
    [
        (((-1, 64),), ("float32",), BATCH * 64 * 4, 1),
        (((-1, 64),), ("float16",), BATCH * 64 * 4, UNKNOWN_POWER),  # twice the output: scratch space
        (((-1, 8, 8),), ("float32",), 3 * 64 * 4 * 16 + 4, UNKNOWN_POWER),
        (((1024,),), ("float32",), 4096, 0),
        (((-1, -1),), ("float32",), BATCH * BATCH * 4, 2),
        (((-1, -1, 64),), ("float32",), BATCH * 64 * 4, UNKNOWN_POWER),  # the batch and what else?
        (((-1, 64), (1024,)), ("float32", "float32"), 4096, UNKNOWN_POWER),  # either of two outputs
        (((-1, 64), (-1, 64)), ("float32", "float32"), 4096, 1),
        ((None,), ("float32",), 4096, UNKNOWN_POWER),
        (((-1, 64),), ("string",), 4096, UNKNOWN_POWER),
        ((), (), 4096, UNKNOWN_POWER),
        ((), (), 512, 0),
    ],
)
def test_a_request_without_a_shape_follows_the_output_of_exactly_its_bytes(
    shapes: Any, dtypes: Any, size: int, power: int
) -> None:
    opened = OpFact("m/b", "forward", output_shapes=((-1, 3),), output_dtypes=("float32",))
    fact = OpFact("m/a", "forward", output_shapes=shapes, output_dtypes=dtypes)
    facts = dataclasses.replace(FACTS, graphs=graph(a=fact, b=opened))
    step = Recorder()
    step.run("a", [(0x1000, size)])
    trace = step.trace()
    assert BatchPowers(trace, facts, Classifier(trace, facts), BATCH).of(0, "workspace") == power


def test_the_batch_follows_from_saved_activations_without_a_shape() -> None:
    # GIVEN layers with outputs of 64 floats for each example, saved for a backward pass
    forward = {
        name: OpFact(
            f"net/{name}", "forward", True, output_shapes=((-1, 64),), output_dtypes=("float32",), passes_to=()
        )
        for name in "ab"
    }
    backward = OpFact("net/b", "backward", forward_inputs=(0, 1))
    facts = dataclasses.replace(FACTS, graphs=graph(**forward, g=backward))
    step = Recorder()
    step.run("a", [(0x1000, BATCH * 64 * 4)])
    step.run("b", [(0x9000, BATCH * 64 * 4)])
    step.run("g", [(0x19000, 256)], [(0x9000, BATCH * 64 * 4), (0x1000, BATCH * 64 * 4)])
    trace = step.trace()
    chunks = step_chunks(trace, Classifier(trace, facts), 0, "train")
    assert {chunks.owners[number].category for number in chunks.owner[:2].tolist()} == {"activations"}
    assert batch_size([Traced(trace, chunks)], TABLE) == BATCH
