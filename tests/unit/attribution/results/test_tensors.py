"""Shapes of tensors: only those that take exactly the requested bytes, from the event, from Python or from the op."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from trace_cases import FACTS, Recorder, graph, ledger_of, one_step

from tb_memplugin.attribution.owners.classifier import Classifier
from tb_memplugin.attribution.results.tensors import TensorShapes
from tb_memplugin.attribution.results.timeline import timeline
from tb_memplugin.schema import TensorShape, Timeline
from tb_memplugin.schema.trace import AllocationTrace, BatchFacts, OpFact, TensorFact, TraceFacts, VariableFact

FLOAT, INT64, STRING = 1, 9, 7


def with_shapes(trace: AllocationTrace, shapes: Mapping[int, tuple[str, int]]) -> AllocationTrace:
    strings, shape, dtype = list(trace.strings), trace.shape.copy(), np.zeros(len(trace), np.int64)
    for event, (text, number) in shapes.items():
        shape[event], dtype[event] = len(strings), number
        strings.append(text)
    return dataclasses.replace(trace, strings=tuple(strings), shape=shape, dtype=dtype)


def shapes_of(trace: AllocationTrace, facts: TraceFacts) -> list[TensorShape | None]:
    classifier = Classifier(trace, facts)
    shapes = TensorShapes(classifier)
    return [shapes.of(chunk) for chunk in range(len(classifier.chunks))]


@pytest.mark.parametrize(
    ("text", "dtype", "size", "shape"),
    [
        ("[16,64]", FLOAT, 4096, TensorShape((16, 64), "float32")),
        ("[512]", INT64, 4096, TensorShape((512,), "int64")),
        ("[]", FLOAT, 4, TensorShape((), "float32")),
        ("[16,64]", FLOAT, 4097, None),  # scratch space under the shape of something else
        ("[16,64]", STRING, 4096, None),
        ("[16,64]", 0, 4096, None),
        ("[-1,-64]", FLOAT, 256, None),
        ("[16,", FLOAT, 64, None),
        ("[nonsense]", FLOAT, 4, None),
    ],
)
def test_the_shape_of_an_event_counts_if_it_takes_the_requested_bytes(text, dtype, size, shape) -> None:
    step = Recorder()
    step.run("a", [(0x1000, size)])
    assert shapes_of(with_shapes(step.trace(), {0: (text, dtype)}), FACTS) == [shape]


def test_an_event_without_a_shape_has_that_of_the_ops_output() -> None:
    # GIVEN an op whose outputs are open in the batch, one of which is a mask of other bytes
    outputs: dict[str, Any] = {"output_shapes": ((-1, 64), (-1, 64)), "output_dtypes": ("float32", "bool")}
    facts = dataclasses.replace(
        FACTS, graphs=graph(a=OpFact("m/a", "forward", **outputs), b=OpFact("m/b", "forward", **outputs))
    )
    step = Recorder()
    step.run("a", [(0x1000, 4096)])
    step.run("b", [(0x9000, 4096)])
    step.run("b", [(0x19000, 1024), (0x29000, 2048)])
    trace = step.trace()
    assert shapes_of(trace, facts) == [None] * 4
    # THEN with the recorded batch, the output of exactly these bytes is the one
    known, mask = TensorShape((16, 64), "float32"), TensorShape((16, 64), "bool")
    assert shapes_of(trace, dataclasses.replace(facts, batch=BatchFacts(16))) == [known, known, mask, None]


def test_two_outputs_of_the_same_bytes_tell_nothing() -> None:
    fact = OpFact("m/a", "forward", output_shapes=((32, 32), (1024,)), output_dtypes=("float32", "float32"))
    step = Recorder()
    step.run("a", [(0x1000, 4096)])
    assert shapes_of(step.trace(), dataclasses.replace(FACTS, graphs=graph(a=fact))) == [None]


def test_older_chunks_have_the_shape_of_their_variable_or_tensor() -> None:
    weights = VariableFact("w", "weights", "m/a", True, 4096, "GPU:0", 0x50000, 0x50000, (32, 32), "float32")
    unknown = VariableFact("v", "weights", "m/a", True, 1024, "GPU:0", 0x60000, 0x60000)
    held = TensorFact("held_tensors", 2000, 0x70000, (500,), "int32")
    facts = dataclasses.replace(FACTS, variables=(weights, unknown), tensors=(held,))
    trace = one_step(4096 + 1024 + 2048).trace()
    classifier = Classifier(trace, facts)
    shapes = TensorShapes(classifier)
    old = {int(classifier.chunks.address[chunk]): shapes.of(chunk) for chunk in range(4, len(classifier.chunks))}
    assert old == {0x50000: TensorShape((32, 32), "float32"), 0x60000: None, 0x70000: TensorShape((500,), "int32")}


def taken(trace: AllocationTrace, facts: TraceFacts) -> Timeline:
    classifier = Classifier(trace, facts)
    made = timeline(classifier, ledger_of(trace, facts, classifier=classifier))
    return made


def test_rows_of_a_timeline_have_address_shape_and_line() -> None:
    fact = dataclasses.replace(FACTS.graphs[0].ops["a"], line="train.py:42")
    facts = dataclasses.replace(FACTS, graphs=graph(**{**FACTS.graphs[0].ops, "a": fact}))
    made = taken(with_shapes(one_step(512).trace(), {0: ("[16,64]", FLOAT)}), facts)
    shapes, lines = (*made.shapes, None), (*made.lines, None)  # -1 is the last one
    columns = zip(made.address.tolist(), made.shape.tolist(), made.line.tolist(), strict=True)
    rows = [(address, shapes[shape], lines[line]) for address, shape, line in columns]
    assert rows == [
        (-1, None, None),  # unknown bytes
        (0x1000, TensorShape((16, 64), "float32"), "train.py:42"),
        (0x9000, None, None),
        (0x20000, None, None),
        (0x30000, None, None),
    ]


def test_a_step_of_10000_tensors_keeps_a_row_for_each() -> None:
    step = Recorder()
    for place in range(10_000):
        step.run("a", [(0x1000 * (place + 1), 256 + place % 7)])
    for place in range(10_000):
        step.run("da", [], [(0x1000 * (place + 1), 256 + place % 7)])
    made = taken(step.trace(), FACTS)
    assert len(made) == 10_000 and (made.count == 1).all() and len(made.time_ns) == 20_001
    assert not any("merged" in sentence or "moments" in sentence for sentence in made.not_available)
    assert sorted(set(made.address.tolist())) == [0x1000 * (place + 1) for place in range(10_000)]
