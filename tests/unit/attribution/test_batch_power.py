"""How sizes follow from the batch where the allocator's event has no shape, as on a GPU."""

import dataclasses
from typing import Any

import pytest
from test_batch import TABLE
from test_tensor_shapes import FLOAT, with_shapes
from trace_cases import FACTS, Recorder, graph

from tb_memplugin.attribution.batch import Traced, batch_size
from tb_memplugin.attribution.batch_power import BatchPowers
from tb_memplugin.attribution.classifier import Classifier
from tb_memplugin.attribution.step_chunks import step_chunks
from tb_memplugin.model import UNKNOWN_POWER
from tb_memplugin.model.trace import OpFact

BATCH = 16
UINT8 = 4


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


def power_of(text: str, dtype: int, size: int, device: str, region: str = "temp") -> int:
    """The power of a request with a shape, by an op with an output of 16 × 64 floats for each example."""
    fact = OpFact("m/a", "forward", output_shapes=((-1, 16, 64),), output_dtypes=("float32",))
    facts = dataclasses.replace(FACTS, graphs=graph(a=fact))
    step = Recorder()
    step.run("a", [(0x1000, size)], region=region)
    trace = dataclasses.replace(with_shapes(step.trace(), {0: (text, dtype)}), device=device)
    return BatchPowers(trace, facts, Classifier(trace, facts), BATCH).of(0, "workspace")


def test_scratch_space_of_a_gpus_kernels_is_unknown_whatever_divides_it() -> None:
    for size in (113_264_787, 4096 * 4096):  # both as cuDNN requested them
        assert power_of(f"[{size}]", UINT8, size, "GPU:0") == UNKNOWN_POWER
    assert power_of("[113264787]", UINT8, 113_264_787, "CPU:0") == 0
    assert power_of("[1000]", UINT8, 1000, "GPU:0") == 0


def test_a_kernel_that_joins_dimensions_requests_the_bytes_of_its_output() -> None:
    for device in ("CPU:0", "GPU:0"):
        assert power_of("[256,64]", FLOAT, BATCH * 16 * 64 * 4, device) == 1
        assert power_of("[256,128]", FLOAT, 2 * BATCH * 16 * 64 * 4, device) == UNKNOWN_POWER


@pytest.mark.parametrize("text", [None, f"[{BATCH},64]", "[64,8]"])
def test_the_batch_follows_from_the_bytes_of_saved_activations(text: str | None) -> None:
    # GIVEN layers with outputs of 64 floats for each example, saved for a backward pass
    fact: dict[str, Any] = {"output_shapes": ((-1, 64),), "output_dtypes": ("float32",)}
    forward = {name: OpFact(f"net/{name}", "forward", True, **fact) for name in "ab"}
    backward = OpFact("net/b", "backward", forward_inputs=(0, 1))
    facts = dataclasses.replace(FACTS, graphs=graph(**forward, g=backward))
    size = BATCH * 64 * 4
    step = Recorder()
    step.run("a", [(0x1000, size)], region="other")
    step.run("b", [(0x9000, size)], region="other")
    step.run("g", [(0x19000, 256)], [(0x9000, size), (0x1000, size)])
    trace = step.trace() if text is None else with_shapes(step.trace(), {0: (text, FLOAT), 1: (text, FLOAT)})
    chunks = step_chunks(trace, Classifier(trace, facts), 0, "train")
    assert {chunks.owners[number].category for number in chunks.owner[:2].tolist()} == {"activations"}
    # THEN a shape that is not that of the batch does not count
    assert batch_size([Traced(trace, chunks)], TABLE) == (None if text == "[64,8]" else BATCH)
