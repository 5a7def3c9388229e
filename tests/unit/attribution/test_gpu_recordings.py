"""The ledger of steps that were recorded on an NVIDIA H200, against the allocator's figures and
Keras's shapes.

``tests/fixtures/make_gpu_recordings.py`` says how recordings and truth were made. They have no
memory maps, so chunks from before the step count with their rounded requests.
"""

import collections
import itertools
import sys
from typing import Any

import numpy as np
import pytest
from gpu_cases import GRAPH, NAMES, TRUTH, XLA, attributed, recorded

from tb_memplugin.attribution import AttributedStep
from tb_memplugin.schema import Snapshot


def truth(name: str) -> dict[str, Any]:
    entry: dict[str, Any] = TRUTH["recordings"][name]
    return {**entry, **TRUTH["models"][entry["model"]]}


def requested(snapshot: Snapshot, category: str) -> dict[str | None, int]:
    totals: dict[str | None, int] = collections.Counter()
    for row in snapshot.ledger:
        if row.category == category:
            assert row.rounding_bytes == 0
            totals[row.layer] += row.bytes
    return totals


def total(snapshot: Snapshot, category: str) -> int:
    return sum(row.bytes for row in snapshot.ledger if row.category == category)


@pytest.mark.parametrize("name", NAMES)
def test_the_ledger_closes_exactly(name: str) -> None:
    snapshot, (trace, facts), known = attributed(name).snapshot, recorded(name), truth(name)
    assert (trace.missed, len(trace)) == (0, known["events"])
    assert trace.start_in_use == facts.start_in_use == known["start_bytes"]
    assert snapshot.in_use_bytes == known["peak_bytes"] == sum(row.bytes for row in snapshot.ledger)
    assert snapshot.mode == known["mode"]
    # The pool is unknown without a memory map.
    assert (snapshot.pool_bytes, snapshot.largest_free_bytes, snapshot.replay) == (None, None, None)
    assert snapshot.capacity_bytes == TRUTH["capacity_bytes"]
    # the allocator's own figure
    assert snapshot.fragmentation is not None and 0 <= snapshot.fragmentation <= 1
    # THEN only unsplit remainders of older chunks are unattributed
    # chunks from before the step that it frees: their events say their sizes
    freed, new = {}, set()
    columns = (trace.kind, trace.address, trace.allocated)
    for kind, address, size in zip(*(column.tolist() for column in columns), strict=True):
        if kind == 1:
            new.add(address)
        elif address not in new:
            freed[address] = size
    kept = {fact.address: fact.requested_bytes for fact in facts.tensors}
    kept |= {
        fact.start_address: fact.requested_bytes
        for fact in facts.variables
        if fact.start_address is not None
    }
    older = sum(-(-size // 256) * 256 for address, size in kept.items() if address not in freed)
    assert total(snapshot, "unattributed") == trace.start_in_use - older - sum(freed.values())


@pytest.mark.parametrize("name", NAMES)
def test_categories_are_those_of_keras(name: str) -> None:
    snapshot, layers = attributed(name).snapshot, truth(name)["layers"]
    weights, slots = requested(snapshot, "weights"), requested(snapshot, "optimizer_state")
    assert {path: size for path, size in weights.items() if size} == {
        path: layer["weights"] for path, layer in layers.items()
    }
    # keeps two
    adam = {path: 2 * layer["trainable"] for path, layer in layers.items() if layer["trainable"]}
    assert {path: size for path, size in slots.items() if path is not None} == adam
    # Only trainable weights have gradients, and these are no larger.
    for path, size in requested(snapshot, "weight_gradients").items():
        assert path is not None and 0 < size <= 2 * layers[path]["trainable"], path
    held, expected = (
        sum(row.bytes for row in snapshot.saved_for_backward),
        truth(name)["held_bytes"],
    )
    # The compiler saves results before and after an activation, and recomputes others.
    least, most = (0.9, 1.5) if name in XLA else (0.97, 1.03)
    assert least * expected <= held <= most * expected
    batch = TRUTH["batch"] * 224 * 224 * 3 * 4
    live = 2 if name in XLA else 1  # the data set's, and a compiled module's argument
    assert live * batch <= sum(requested(snapshot, "inputs").values()) < live * batch + 65_536


def test_vgg16_saves_its_published_size() -> None:
    assert truth("VGG16_graph_trainable")["held_bytes"] == TRUTH["batch"] * 60_950_432


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name.startswith("VGG16") and name.endswith("frozen")]
)
def test_frozen_backbone_saves_nothing(name: str) -> None:
    held = {row.layer: row.bytes for row in attributed(name).snapshot.saved_for_backward}
    assert not any(path and "conv" in path for path in held)
    assert all(
        row.trainable is not False
        for row in attributed(name).snapshot.ledger
        if row.category == "activations"
    )


@pytest.mark.parametrize("name", GRAPH)
def test_copies_in_another_layout_are_not_gradients(name: str) -> None:
    chunks = attributed(name).chunks
    first, seen = {"VGG16": "block1_conv1", "ResNet50": "conv1_conv"}[name.partition("_")[0]], 0
    owners = {
        birth: chunks.owners[owner]
        for birth, owner in zip(chunks.birth.tolist(), chunks.owner, strict=True)
    }
    for op, births in chunks.ops.items():
        for owner in (owners[birth] for birth in births if "LayoutOptimizer" in op):
            assert owner.layer is not None
            assert owner.category in ("activations", "activation_gradients", "workspace"), op
            if f"/{first}_1/convolution/Conv2DBackpropFilter-0-" in op:
                assert owner.category == "activations"
                seen += 1
    assert seen == (1 if name.endswith("trainable") else 0)


@pytest.mark.parametrize("name", GRAPH)
def test_chunks_of_gradients_and_activations_match_keras(name: str) -> None:
    trace, chunks = recorded(name)[0], attributed(name).chunks
    gradients, changes = collections.Counter(), [0] * (len(trace) + 1)
    for row in np.flatnonzero(chunks.birth >= 0).tolist():
        owner, size = chunks.owners[chunks.owner[row]], int(chunks.requested[row])
        if owner.category == "weight_gradients":
            gradients[owner.layer] += size
        elif owner.category == "activations":
            changes[chunks.birth[row]] += size
            changes[chunks.death[row]] -= size
    for path, layer in truth(name)["layers"].items():
        # Gradients of normalization weights reuse the buffers of other results.
        assert gradients[path] == layer["trainable"] or path.endswith("_bn"), path
    assert max(itertools.accumulate(changes)) == pytest.approx(truth(name)["held_bytes"], rel=0.05)


def test_attribution_calls_few_functions_for_each_event() -> None:
    """Look-ups of every op that ran would take most of the time from file to ledger."""
    trace, facts = recorded("ResNet50_graph_trainable")
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        assert AttributedStep(trace, facts, step=0, phase="train", wall_time=0.0).snapshot
    finally:
        sys.setprofile(None)
    assert calls < 27 * len(trace)
