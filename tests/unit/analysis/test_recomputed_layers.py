"""The finding on recomputed layers, from a step written by hand."""

import dataclasses

import pytest
from reading_cases import MIB, empty_activations, make_samples
from requests_cases import hand_made_requests

from tb_memplugin.analysis.recomputed_layers import recomputation_finding
from tb_memplugin.model import Layer, LayerTable, Mode, Run
from tb_memplugin.model.layers import Recomputed


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
    run = Run("r", ("s",), ("",), (), make_samples([], []), empty_activations(), (), (), ())
    return dataclasses.replace(run, layer_tables=(table,), requests=(requests,))


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


def test_an_exact_recomputation_or_none_is_no_finding() -> None:
    assert recomputation_finding(run_with(layer("net/block", "Block", "exact")), "CPU:0") is None
    assert recomputation_finding(run_with(layer("net/block", "Block", None)), "CPU:0") is None


@pytest.mark.parametrize("worker", ["", "worker_1"])
def test_of_a_compiled_step_no_bytes_are_said(worker: str) -> None:
    run = run_with(layer("net/drop", "Dropout", "anew"), mode="xla")
    sentence = recomputation_finding(run, "CPU:0", worker)
    assert sentence is not None and "may have merged both runs" in sentence and "MiB" not in sentence
    assert "draws other random numbers" in sentence and sentence.startswith(f"{worker}/CPU:0" if worker else "CPU:0")
