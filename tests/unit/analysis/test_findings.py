"""Findings on memory that is no longer used, on data sets, constants and dense gradients, and on
recomputed layers."""

import dataclasses

import numpy as np
import pytest
from reading_cases import MIB, make_run, make_snapshot, make_timeline, sentences
from requests_cases import hand_made_requests

from tb_memplugin.analysis import findings, recomputation_findings
from tb_memplugin.schema import (
    Band,
    ChunkOwner,
    HeldTensorGroup,
    Layer,
    LayerTable,
    LedgerRow,
    Mode,
    Recomputed,
    Run,
    SavedRow,
    replaced_optimizer,
    unused,
)

ADAM, RESNET = replaced_optimizer("Adam", 72), unused("resnet50")


def run_with(*rows: LedgerRow) -> Run:
    snapshot = dataclasses.replace(
        make_snapshot(step=80), ledger=rows, in_use_bytes=sum(row.bytes for row in rows)
    )
    return make_run(snapshots=(snapshot,))


def test_names_and_sizes_are_said_the_largest_first() -> None:
    run = run_with(
        LedgerRow("net/dense", "optimizer_state", True, 84 * MIB, 0),
        LedgerRow(f"{ADAM}/net/dense", "optimizer_state", None, 3 * MIB, 0),
        LedgerRow(f"{ADAM}/net/head", "optimizer_state", None, 1 * MIB, 0),
        LedgerRow(f"{ADAM}/net/head", "rounding", None, 2 * MIB, 2 * MIB),
        LedgerRow(f"{RESNET}/conv1", "weights", None, 10 * MIB, 0),
    )
    (found,) = findings({"worker_1": run})
    assert (found.kind, found.worker, found.device) == ("unused", "worker_1", "worker_1/CPU:0")
    assert (found.since_step, found.step, found.bytes) == (None, 80, 14 * MIB)
    assert found.share == 0.14 and not found.minor
    sentence = found.sentence
    assert sentence.startswith("worker_1/CPU:0: ")
    assert "14.0 MiB (14 % of the peak of step 80)" in sentence
    assert f"{RESNET} (10.0 MiB), {ADAM} (4.0 MiB)." in sentence
    assert "`tb_memplugin.release_unused()`" in sentence
    # A share that explains nothing is no warning; less than one percent, and slots in use, are no
    # finding.
    used = LedgerRow("net/dense", "optimizer_state", True, 1000 * MIB, 0)
    for size, minor in ((50, True), (60, False)):
        (found,) = findings(
            {"": run_with(used, LedgerRow(ADAM, "optimizer_state", None, size * MIB, 0))}
        )
        assert found.minor == minor and found.share == size / (1000 + size)
    assert (
        sentences(
            findings(
                {
                    "": run_with(
                        used, LedgerRow(f"{ADAM}/net/dense", "optimizer_state", None, 9 * MIB, 0)
                    )
                }
            )
        )
        == []
    )


def test_the_share_is_of_a_training_step_where_one_has_a_breakdown() -> None:
    run = run_with(
        LedgerRow("net/dense", "activations", None, 90 * MIB, 0),
        LedgerRow(f"{ADAM}/net/dense", "optimizer_state", None, 10 * MIB, 0),
    )
    (trained,) = run.snapshots
    later = {
        "ledger": trained.ledger[1:],
        "in_use_bytes": 10 * MIB,
        "wall_time": trained.wall_time + 1,
    }
    validated = dataclasses.replace(trained, phase="validation", **later)
    (sentence,) = sentences(
        findings({"": dataclasses.replace(run, snapshots=(trained, validated))})
    )
    assert "(10 % of the peak of step 80)" in sentence
    (sentence,) = sentences(findings({"": dataclasses.replace(run, snapshots=(validated,))}))
    assert "(100 % of the peak of validation step 80)" in sentence


def test_data_sets_constants_and_dense_gradients_that_take_much_are_said_with_what_to_do() -> None:
    rows = (
        LedgerRow(None, "inputs", None, 40 * MIB, 0),
        LedgerRow("net/project", "other_state", None, 20 * MIB, 0),
        LedgerRow("net/table", "weight_gradients", True, 30 * MIB, 0),
        LedgerRow("net/table", "weights", True, 10 * MIB, 0),
    )
    sparse = "sparse gradient of layer net/table"
    groups = (
        HeldTensorGroup((10, MIB), "float32", 1, 38 * MIB, "data set", category="inputs"),
        HeldTensorGroup(
            (5,),
            "float32",
            1,
            20 * MIB,
            "constant in layer net/project",
            "a.py:3",
            None,
            "other_state",
        ),
        HeldTensorGroup((MIB,), "uint8", 1, MIB, "variable `buffer`", category="other_state"),
        HeldTensorGroup(
            (7,), "float32", 1, 28 * MIB, f"{sparse}, made dense", category="weight_gradients"
        ),
    )

    def found(*held: HeldTensorGroup) -> list[str]:
        run = run_with(*rows)
        (snapshot,) = run.snapshots
        return sentences(
            findings(
                {
                    "": dataclasses.replace(
                        run, snapshots=(dataclasses.replace(snapshot, held_tensors=held),)
                    )
                }
            )
        )

    data, constants, dense = found(*groups)
    assert ("38.0 MiB (38 % of the peak of step 80) are the data set") in data and (
        "batches take 2.0 MiB"
    ) in data
    assert "`keras.utils.PyDataset`" in data and "tf.device" not in data
    assert (
        "20.0 MiB (20 %" in constants
        and "constant in layer net/project at a.py:3 (20.0 MiB)" in constants
    )
    assert "28.0 MiB (28 %" in dense and "sparse gradient of layer net/table (28.0 MiB)" in dense
    waiting = HeldTensorGroup((8,), "float32", 12, 36 * MIB, "prefetch(12)", category="inputs")
    (ready,) = found(waiting, dataclasses.replace(waiting, count=1, bytes=MIB))
    assert ready.startswith(
        "CPU:0: 36.0 MiB (36 % of the peak of step 80) are batches that wait in the input "
        "pipeline: prefetch(12) (36.0 MiB). `prefetch(2)` keeps two ready"
    )
    assert found(dataclasses.replace(waiting, count=2)) == []
    # of the highest breakdown: the last one may have few
    (last,) = run_with(*rows).snapshots
    high = dataclasses.replace(
        last, step=1, in_use_bytes=2 * last.in_use_bytes, held_tensors=(waiting,)
    )
    both = dataclasses.replace(run_with(*rows), snapshots=(high, last))
    assert "peak of step 1) are batches that wait" in " ".join(sentences(findings({"": both})))
    # BUT not of a small data set, and not below a tenth
    assert found(dataclasses.replace(groups[0], bytes=15 * MIB)) == []
    assert found(*(dataclasses.replace(group, bytes=9 * MIB) for group in groups)) == []


def finding(run: Run, worker: str = "") -> str | None:
    found = sentences(recomputation_findings(run, worker))
    assert len(found) <= 1
    return found[0] if found else None


def layer(path: str, kind: str, recomputed: Recomputed | None) -> Layer:
    return Layer(path, kind, True, 1, 4, 4, 0, None, None, None, recomputed=recomputed)


def recomputing(*layers: Layer, mode: Mode = "graph") -> Run:
    """A step whose last result, of `net/block/dense`, is made after the first gradient."""
    requests = hand_made_requests(
        (
            ("net/block/dense", "activations", "net/block/dense/MatMul", 3 * MIB, 0, 2),
            ("net/head", "activation_gradients", "gradient_tape/net/head/MatMul", MIB, 1, 5),
            ("net/block/dense", "activations", "dense/MatMul", 3 * MIB, 3, 4),
        )
    )
    requests = dataclasses.replace(requests, mode=mode)
    table = LayerTable(0, 0.0, "recording began", layers, None, 0, 0)
    return make_run(layer_tables=(table,), requests=(requests,))


def test_inner_layers_count_once_and_what_differs_is_named() -> None:
    layers = [
        layer("net/block", "Block", "resampled"),
        layer("net/block/dense", "Dense", "resampled"),
        layer("net/block/norm", "BatchNormalization", "resampled"),
        layer("net/head", "Dense", None),
    ]
    sentence = finding(recomputing(*layers))
    assert sentence == (
        "CPU:0: 1 layer runs again in the backward pass (net/block). 3.0 MiB of activations are "
        "not kept until then. Each step updates the moving statistics of net/block/norm twice. "
        "`tb_memplugin.remat` recomputes layers without that."
    )


def test_the_second_run_lasts_from_its_first_request_to_the_next_gradient() -> None:
    # GIVEN two blocks that are computed again one after the other, in a step of 2 ms with an event
    # every 0.1 ms
    requests = hand_made_requests(
        (
            ("net/a", "activations", "net/a/MatMul", MIB, 0, 2),
            ("net/b", "activations", "net/b/MatMul", MIB, 1, 4),
            ("net/head", "activation_gradients", "gradient_tape/net/head/MatMul", MIB, 3, 9),
            ("net/b", "activations", "b/MatMul", MIB, 5, 8),
            ("net/b", "activations", "b/Relu", MIB, 6, 10),
            ("net/b", "activation_gradients", "gradient_tape/b/MatMul", MIB, 7, 13),
            ("net/a", "activations", "a/MatMul", MIB, 11, 14),
            ("net/a", "activation_gradients", "gradient_tape/a/MatMul", MIB, 12, 15),
        )
    )
    line = dataclasses.replace(
        make_timeline(3),
        event=np.arange(17),
        time_ns=100_000 * np.arange(17),
        duration_ns=2_000_000,
    )
    run = dataclasses.replace(
        recomputing(*(layer(f"net/{name}", "Dense", "resampled") for name in "ab")),
        requests=(requests,),
    )
    # THEN 5 to 7 and 11 to 12 are three events: 0.3 of 2 ms
    for timelines, said in (
        (
            (line,),
            "3.0 MiB of activations are not kept until then; the second run takes about 15% of "
            "the step's time.",
        ),
        ((), "3.0 MiB of activations are not kept until then."),
        ((dataclasses.replace(line, step=2),), "3.0 MiB of activations are not kept until then."),
        (
            (dataclasses.replace(line, duration_ns=0),),
            "3.0 MiB of activations are not kept until then.",
        ),
    ):
        sentence = finding(dataclasses.replace(run, timelines=timelines))
        assert sentence == f"CPU:0: 2 layers run again in the backward pass (net/a, net/b). {said}"

    # An exact recomputation or none is no finding.
    assert finding(recomputing(layer("net/block", "Block", "exact"))) is None
    assert finding(recomputing(layer("net/block", "Block", None))) is None


@pytest.mark.parametrize("worker", ["", "worker_1"])
def test_of_a_compiled_step_no_bytes_are_said(worker: str) -> None:
    run = recomputing(layer("net/drop", "Dropout", "resampled"), mode="xla")
    sentence = finding(run, worker)
    assert (
        sentence is not None and "may have merged both runs" in sentence and "MiB" not in sentence
    )
    assert "draws other random numbers" in sentence and sentence.startswith(
        f"{worker}/CPU:0" if worker else "CPU:0"
    )


def compiled(
    kind: Recomputed,
    op: str,
    bands: tuple[Band, ...] = (Band("forward", 0, 2), Band("backward", 2, 5)),
) -> Run:
    """A compiled step that saves 5 MiB of `net/block`; its backward pass has a buffer of that
    layer, named by an op."""
    line = dataclasses.replace(
        make_timeline(3),
        mode="xla",
        start=np.asarray([1, 3]),
        bytes=np.asarray([5 * MIB, 2 * MIB]),
        rounding_bytes=np.asarray([0, -1]),
        owner=np.asarray([0, 1]),
        op=np.asarray([-1, 0]),
        owners=(
            ChunkOwner("net/block", "activations", True),
            ChunkOwner("net/block/dense", "workspace", True),
        ),
        ops=(op,),
        bands=bands,
    )
    saved = (SavedRow("net/block", 5 * MIB), SavedRow("net/blocks", MIB))
    snapshot = dataclasses.replace(make_snapshot(3), device="CPU:0", saved_for_backward=saved)
    run = recomputing(layer("net/block", "Block", kind), mode="xla")
    return dataclasses.replace(run, timelines=(line,), snapshots=(snapshot,))


def test_a_compiled_step_says_what_its_buffers_show() -> None:
    merged = (
        "CPU:0: 1 layer should run again in the backward pass (net/block), but XLA merged both "
        "runs: 5.0 MiB of their activations are kept until then. Compile the model with "
        "jit_compile=False."
    )
    backward, forward = "gradient_tape/net/block/dense/MatMul", "dense/BiasAdd"
    kinds: tuple[Recomputed, ...] = ("exact", "resampled")
    for kind in kinds:
        assert finding(compiled(kind, backward)) == merged
    again = (
        "CPU:0: 1 layer runs again in the backward pass (net/block). 2.0 MiB of activations are "
        "not kept until then."
    )
    assert finding(compiled("resampled", forward)) == again
    assert finding(compiled("exact", forward)) is None
    # Where the passes are unknown, so is what XLA did.
    unknown = finding(compiled("resampled", backward, bands=()))
    assert unknown is not None and "may have merged both runs" in unknown
    assert finding(compiled("exact", backward, bands=())) is None
