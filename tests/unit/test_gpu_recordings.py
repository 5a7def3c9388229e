"""The ledger of steps that were recorded on an NVIDIA H200, against the allocator's figures and Keras's shapes.

``tests/fixtures/make_gpu_recordings.py`` says how recordings and truth were made.
"""

import collections
import functools
import gzip
import json
import pathlib
import sys
from typing import Any

import pytest

from tb_memplugin.analysis.attribution import attribute
from tb_memplugin.analysis.categories import Classifier
from tb_memplugin.analysis.lifetimes import chunks
from tb_memplugin.analysis.seen_step import seen_step
from tb_memplugin.importers.xplane import read_traces
from tb_memplugin.model import Snapshot
from tb_memplugin.trace import AllocationTrace, TraceFacts

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
TRUTH: dict[str, Any] = json.loads((FIXTURES / "gpu" / "truth.json").read_text())
NAMES = sorted(TRUTH["recordings"])
GRAPH, XLA = ([name for name in NAMES if f"_{mode}_" in name] for mode in ("graph", "xla"))


@functools.cache
def recorded(name: str) -> tuple[AllocationTrace, TraceFacts]:
    sys.path.insert(0, str(FIXTURES))
    try:
        import gpu_facts
    finally:
        sys.path.remove(str(FIXTURES))
    traces = read_traces(gzip.decompress((FIXTURES / "gpu" / f"{name}.xplane.pb.gz").read_bytes()))
    facts = json.loads(gzip.decompress((FIXTURES / "gpu" / f"{name}.facts.json.gz").read_bytes()))
    (trace,) = (trace for trace in traces if trace.device == "GPU:0")
    return trace, gpu_facts.from_json(facts)


@functools.cache
def replayed(name: str) -> Snapshot:
    trace, facts = recorded(name)
    limit = TRUTH["capacity_bytes"]
    return attribute(trace, facts, step=0, phase="train", wall_time=0.0, capacity_bytes=limit, grows=False)


def truth(name: str) -> dict[str, Any]:
    entry: dict[str, Any] = TRUTH["recordings"][name]
    return {**entry, **TRUTH["models"][entry["model"]]}


def requested(snapshot: Snapshot, category: str) -> dict[str | None, int]:
    """Bytes asked for by layer, of one category."""
    totals: dict[str | None, int] = collections.Counter()
    for row in snapshot.ledger:
        if row.category == category:
            totals[row.layer] += row.bytes - (row.rounding_bytes or 0)
    return totals


def total(snapshot: Snapshot, category: str) -> int:
    return sum(row.bytes for row in snapshot.ledger if row.category == category)


@pytest.mark.parametrize("name", NAMES)
def test_the_ledger_closes_exactly(name: str) -> None:
    snapshot, (trace, facts) = replayed(name), recorded(name)
    assert trace.missed == 0
    assert len(trace) == truth(name)["events"]
    assert trace.start_in_use == facts.start_in_use == truth(name)["start_bytes"]
    assert snapshot.in_use_bytes == truth(name)["peak_bytes"]
    assert sum(row.bytes for row in snapshot.ledger) == snapshot.in_use_bytes
    assert snapshot.mode == truth(name)["mode"]


@pytest.mark.parametrize("name", NAMES)
def test_every_byte_has_an_owner(name: str) -> None:
    snapshot = replayed(name)
    most = 0.02 if name in XLA else 0.005
    assert total(snapshot, "unattributed") <= most * snapshot.in_use_bytes


@pytest.mark.parametrize("name", NAMES)
def test_weights_and_slots_of_every_layer_are_exact(name: str) -> None:
    weights, slots = requested(replayed(name), "weights"), requested(replayed(name), "optimizer_state")
    layers = truth(name)["layers"]
    assert {path: size for path, size in weights.items() if size} == {
        path: layer["weights"] for path, layer in layers.items()
    }
    assert {path: size for path, size in slots.items() if path is not None} == {
        path: 2 * layer["trainable"]
        for path, layer in layers.items()
        if layer["trainable"]  # Adam keeps two
    }


@pytest.mark.parametrize("name", NAMES)
def test_only_trainable_weights_have_gradients_and_these_are_no_larger(name: str) -> None:
    layers = truth(name)["layers"]
    for path, size in requested(replayed(name), "weight_gradients").items():
        assert path is not None
        assert 0 < size <= 2 * layers[path]["trainable"], path


@pytest.mark.parametrize("name", GRAPH)
def test_what_waits_for_the_backward_pass_is_what_kerass_shapes_say(name: str) -> None:
    held = sum(row.bytes for row in replayed(name).held_for_backward)
    assert held == pytest.approx(truth(name)["held_bytes"], rel=0.03)


@pytest.mark.parametrize("name", XLA)
def test_what_waits_in_compiled_steps_is_of_that_size(name: str) -> None:
    # The compiler chooses: it keeps results before and after an activation, and makes others again.
    held = sum(row.bytes for row in replayed(name).held_for_backward)
    assert 0.9 * truth(name)["held_bytes"] <= held <= 1.5 * truth(name)["held_bytes"]


def test_vgg16_holds_what_is_known_of_it() -> None:
    assert truth("VGG16_graph_trainable")["held_bytes"] == TRUTH["batch"] * 60_950_432


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("VGG16") and name.endswith("frozen")])
def test_a_frozen_backbone_holds_nothing(name: str) -> None:
    held = {row.layer: row.bytes for row in replayed(name).held_for_backward}
    assert not any(path and "conv" in path for path in held)
    assert all(row.trainable is not False for row in replayed(name).ledger if row.category == "activations")


@pytest.mark.parametrize("name", NAMES)
def test_batches_are_inputs(name: str) -> None:
    batch = TRUTH["batch"] * 224 * 224 * 3 * 4
    live = 2 if name in XLA else 1  # the data set's, and a compiled module's argument
    assert live * batch <= sum(requested(replayed(name), "inputs").values()) < live * batch + 65_536


@pytest.mark.parametrize("name", GRAPH)
def test_copies_in_another_layout_are_no_gradients(name: str) -> None:
    trace, facts = recorded(name)
    classifier = Classifier(trace, facts, chunks(trace))
    first, seen = {"VGG16": "block1_conv1", "ResNet50": "conv1_conv"}[name.partition("_")[0]], 0
    for chunk in range(len(classifier.chunks)):
        birth = int(classifier.chunks.birth[chunk])
        op = trace.text(int(trace.op[birth])) if birth >= 0 else None
        if op is not None and "LayoutOptimizer" in op:
            ((owner, _, _),) = classifier.owners(chunk, birth)
            assert owner.layer is not None
            assert owner.category in ("activations", "activation_gradients", "workspace"), op
            if f"/{first}_1/convolution/Conv2DBackpropFilter-0-" in op:
                assert owner.category == "activations"
                seen += 1
    assert seen == (1 if name.endswith("trainable") else 0)


@pytest.mark.parametrize("name", NAMES)
def test_the_pool_is_the_whole_limit(name: str) -> None:
    snapshot = replayed(name)
    assert snapshot.pool_bytes == TRUTH["capacity_bytes"]
    assert snapshot.largest_free_bytes is not None and snapshot.largest_free_bytes % 256 == 0
    free = snapshot.pool_bytes - snapshot.in_use_bytes
    assert free >= snapshot.largest_free_bytes
    assert snapshot.fragmentation == pytest.approx(1 - snapshot.largest_free_bytes / free, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_owners_of_chunks_are_those_of_the_ledger(name: str) -> None:
    trace, facts = recorded(name)
    classifier = Classifier(trace, facts, chunks(trace))
    seen = seen_step(trace, classifier, 0, "train")
    live = seen.live(int(trace.in_use.argmax()) + 1)
    weights = sum(
        int(seen.allocated[row]) for row in live.tolist() if seen.owners[int(seen.owner[row])].category == "weights"
    )
    # A chunk that becomes a statistic of a normalisation is workspace for as long as the old one is there.
    assert weights == pytest.approx(total(replayed(name), "weights"), rel=0.005)
