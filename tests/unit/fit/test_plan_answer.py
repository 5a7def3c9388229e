"""The lines that apply a plan: they parse, and do what the option says."""

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from tb_memplugin.fit import Kind, PlanOption
from tb_memplugin.fit.plans import code_of
from tb_memplugin.schema import Layer

SEGMENTS = (("a",), ("b", 'c"', "d"))


def layer(path: str, kind: str) -> Layer:
    return Layer(path, kind, True, 0, 0, 0, 0, None, None, None)


LAYERS = (layer("net", "Functional"), layer("net/inner", "Sequential"), layer("net/block", "Block"))


def option(kind: Kind, **changed: Any) -> PlanOption:
    values = {"segments": (), "batch_size": 8, "accumulation": 1, **changed}
    return PlanOption(kind, "", peak_bytes=0, low_bytes=0, high_bytes=0, fits=True, extra_time=None, **values)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (option("none"), set()),
        (option("recompute", segments=SEGMENTS), {"tb_memplugin.remat", "model.compile"}),
        (option("accumulate", accumulation=4), {"keras.optimizers.Adam", "model.compile", "batch_size"}),
        (option("batch_size"), {"batch_size"}),
        (option("precision"), {"keras.mixed_precision.set_global_policy"}),
        (option("optimizer"), {"keras.optimizers.SGD", "model.compile"}),
        (
            option("recompute_and_accumulate", segments=SEGMENTS, accumulation=2),
            {"tb_memplugin.remat", "keras.optimizers.Adam", "model.compile", "batch_size"},
        ),
        (
            option("recompute_and_optimizer", segments=SEGMENTS),
            {"tb_memplugin.remat", "keras.optimizers.SGD", "model.compile"},
        ),
        (option("recompute_and_batch_size", segments=SEGMENTS), {"tb_memplugin.remat", "model.compile", "batch_size"}),
    ],
)
def test_the_lines_make_the_changes_of_the_option(chosen: PlanOption, expected: set[str]) -> None:
    tree = ast.parse(code_of(chosen, "Adam", LAYERS))
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assigned = {ast.unparse(node.targets[0]) for node in ast.walk(tree) if isinstance(node, ast.Assign)}
    assert called | (assigned & {"batch_size"}) == expected


def test_segments_are_pairs_of_their_ends() -> None:
    model, passed = SimpleNamespace(compile=lambda *_: None), []
    recording = SimpleNamespace(remat=lambda given, pairs: passed.append(pairs) or given)
    text = code_of(option("recompute", segments=SEGMENTS), "Adam", LAYERS).replace("...", "None")
    exec(text, {"tb_memplugin": recording, "model": model, "optimizer": None})
    assert passed == [[("a", "a"), ("b", "d")]]
    assert "without jit_compile: compiled steps have other peaks" in text
    assert "jit_compile" not in code_of(option("accumulate", accumulation=4), "Adam", LAYERS)


def test_layers_are_frozen_where_a_model_has_them() -> None:
    class Model:
        def __init__(self, **layers: Any) -> None:
            self.layers, self.trainable = layers, True

        def get_layer(self, name: str) -> Any:
            return self.layers[name]

        def compile(self, *_: Any) -> None:
            pass

    model = Model(a=Model(), b=Model(), inner=Model(c=Model()), block=Model(d=Model()))
    text = code_of(option("freeze", frozen=("a", "inner/c", "block/d")), "Adam", LAYERS).replace("...", "None")
    exec(text, {"model": model, "optimizer": None})
    assert not model.layers["a"].trainable and not model.layers["inner"].layers["c"].trainable
    assert model.layers["b"].trainable and model.layers["block"].layers["d"].trainable
    # A layer inside one that is no model is named, so that nothing is left out silently.
    assert "# set `trainable = False` on block/d" in text
