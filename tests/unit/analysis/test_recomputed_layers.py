"""The finding on recomputed layers, from a step written by hand."""

import dataclasses

import numpy as np
import pytest
from reading_cases import MIB, make_run, make_snapshot, make_timeline
from requests_cases import hand_made_requests

from tb_memplugin.analysis.run_findings import recomputation_finding
from tb_memplugin.schema import Band, ChunkOwner, Layer, LayerTable, Mode, Run
from tb_memplugin.schema.layers import Recomputed
from tb_memplugin.schema.snapshot import SavedRow


def layer(path: str, kind: str, recomputed: Recomputed | None) -> Layer:
    return Layer(path, kind, True, 1, 4, 4, 0, None, None, None, recomputed=recomputed)


def run_with(*layers: Layer, mode: Mode = "graph") -> Run:
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
        layer("net/block", "Block", "anew"),
        layer("net/block/dense", "Dense", "anew"),
        layer("net/block/norm", "BatchNormalization", "anew"),
        layer("net/head", "Dense", None),
    ]
    sentence = recomputation_finding(run_with(*layers), "CPU:0")
    assert sentence == (
        "CPU:0: 1 layer runs again in the backward pass (net/block). 3.0 MiB of activations are not kept until then. "
        "Each step updates the moving statistics of net/block/norm twice. `tb_memplugin.remat` recomputes layers "
        "without that."
    )


def test_the_second_run_lasts_from_its_first_request_to_the_next_gradient() -> None:
    # GIVEN two blocks that are computed again one after the other, in a step of 2 ms with an event every 0.1 ms
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
        make_timeline(3, device="CPU:0"), event=np.arange(17), time_ns=100_000 * np.arange(17), duration_ns=2_000_000
    )
    run = dataclasses.replace(run_with(*(layer(f"net/{name}", "Dense", "anew") for name in "ab")), requests=(requests,))
    # THEN 5 to 7 and 11 to 12 are three events: 0.3 of 2 ms
    for timelines, said in (
        ((line,), "3.0 MiB of activations are not kept until then; the second run takes about 15% of the step's time."),
        ((), "3.0 MiB of activations are not kept until then."),
        ((dataclasses.replace(line, step=2),), "3.0 MiB of activations are not kept until then."),
        ((dataclasses.replace(line, duration_ns=0),), "3.0 MiB of activations are not kept until then."),
    ):
        sentence = recomputation_finding(dataclasses.replace(run, timelines=timelines), "CPU:0")
        assert sentence == f"CPU:0: 2 layers run again in the backward pass (net/a, net/b). {said}"


def test_an_exact_recomputation_or_none_is_no_finding() -> None:
    assert recomputation_finding(run_with(layer("net/block", "Block", "exact")), "CPU:0") is None
    assert recomputation_finding(run_with(layer("net/block", "Block", None)), "CPU:0") is None


@pytest.mark.parametrize("worker", ["", "worker_1"])
def test_of_a_compiled_step_no_bytes_are_said(worker: str) -> None:
    run = run_with(layer("net/drop", "Dropout", "anew"), mode="xla")
    sentence = recomputation_finding(run, "CPU:0", worker)
    assert sentence is not None and "may have merged both runs" in sentence and "MiB" not in sentence
    assert "draws other random numbers" in sentence and sentence.startswith(f"{worker}/CPU:0" if worker else "CPU:0")


def compiled(
    kind: Recomputed, op: str, bands: tuple[Band, ...] = (Band("forward", 0, 2), Band("backward", 2, 5))
) -> Run:
    """A compiled step that saves 5 MiB of `net/block`; its backward pass has a buffer of that layer, named by an op."""
    line = dataclasses.replace(
        make_timeline(3, device="CPU:0"),
        mode="xla",
        start=np.asarray([1, 3]),
        bytes=np.asarray([5 * MIB, 2 * MIB]),
        rounding_bytes=np.asarray([0, -1]),
        owner=np.asarray([0, 1]),
        op=np.asarray([-1, 0]),
        owners=(ChunkOwner("net/block", "activations", True), ChunkOwner("net/block/dense", "workspace", True)),
        ops=(op,),
        bands=bands,
    )
    saved = (SavedRow("net/block", 5 * MIB), SavedRow("net/blocks", MIB))
    snapshot = dataclasses.replace(make_snapshot(3), device="CPU:0", saved_for_backward=saved)
    run = run_with(layer("net/block", "Block", kind), mode="xla")
    return dataclasses.replace(run, timelines=(line,), snapshots=(snapshot,))


def test_a_compiled_step_says_what_its_buffers_show() -> None:
    merged = (
        "CPU:0: 1 layer should run again in the backward pass (net/block), but XLA merged both runs: 5.0 MiB of their "
        "activations are kept until then. Compile the model with jit_compile=False."
    )
    backward, forward = "gradient_tape/net/block/dense/MatMul", "dense/BiasAdd"
    kinds: tuple[Recomputed, ...] = ("exact", "anew")
    for kind in kinds:
        assert recomputation_finding(compiled(kind, backward), "CPU:0") == merged
    again = (
        "CPU:0: 1 layer runs again in the backward pass (net/block). 2.0 MiB of activations are not kept until then."
    )
    assert recomputation_finding(compiled("anew", forward), "CPU:0") == again
    assert recomputation_finding(compiled("exact", forward), "CPU:0") is None
    # Where the passes are unknown, so is what XLA did.
    unknown = recomputation_finding(compiled("anew", backward, bands=()), "CPU:0")
    assert unknown is not None and "may have merged both runs" in unknown
    assert recomputation_finding(compiled("exact", backward, bands=()), "CPU:0") is None
