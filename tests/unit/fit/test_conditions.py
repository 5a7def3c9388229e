"""Globs for paths of layers."""

import time

import pytest

from tb_memplugin.errors import RequestError
from tb_memplugin.fit import Conditions
from tb_memplugin.fit.conditions import globs_of, matching, refuse_unmatched
from tb_memplugin.schema import Layer

PATHS = ("net/block1/conv1", "net/block1/conv2", "net/block2/conv1", "net/Head", "net/block1")


def layers() -> list[Layer]:
    return [
        Layer(path, "Dense", True, 0 if path == "net/block1" else 10, 40, 40, 0, None, None, None) for path in PATHS
    ]


@pytest.mark.parametrize(
    ("globs", "expected"),
    [
        ("*", PATHS[:4]),
        ("net/block1/*", PATHS[:2]),
        ("*/conv1", (PATHS[0], PATHS[2])),
        ("net/*1", (PATHS[0], PATHS[2])),  # * matches / as well
        ("net/block?/conv[1]", (PATHS[0], PATHS[2])),
        ("net/block2/*, net/Head", PATHS[2:4]),
        ("conv1", ()),
        ("net/head", ()),
        ("net/block1", ()),  # has no weights of its own
        (",", ()),
    ],
)
def test_globs_match_whole_paths_of_layers_with_weights(globs: str, expected: tuple[str, ...]) -> None:
    assert tuple(layer.path for layer in matching(layers(), globs)) == expected


@pytest.mark.parametrize(
    ("conditions", "named"),
    [
        (
            Conditions(freeze="net/head"),
            "freeze: no layer with weights has a path like 'net/head'; the nearest is 'net/Head'",
        ),
        (Conditions(unfreeze="*, block2/*"), "like 'block2/*'; the nearest is 'net/block2/conv1'"),
        (Conditions(unfreeze="net/block1"), "the nearest is 'net/block1/conv1'"),
        (Conditions(freeze="?"), "the nearest is 'net/"),
    ],
)
def test_a_glob_without_a_layer_names_the_nearest(conditions: Conditions, named: str) -> None:
    with pytest.raises(RequestError) as raised:
        refuse_unmatched(conditions, layers())
    assert named in str(raised.value) and str(raised.value).startswith(f"{raised.value.parameter}: ")


def test_globs_with_layers_and_runs_without_layers_are_accepted() -> None:
    refuse_unmatched(Conditions(freeze="net/*", unfreeze="*/conv1,"), layers())
    refuse_unmatched(Conditions(freeze="x"), [])


def test_no_glob_takes_long() -> None:
    many = [Layer(f"{'a' * 300}{row}", "Dense", True, 1, 4, 4, 0, None, None, None) for row in range(1000)]
    began = time.process_time()
    assert matching(many, "*a" * 250 + "b," + "*?[a-z]" * 70 + "b") == []
    with pytest.raises(RequestError):
        refuse_unmatched(Conditions(freeze="*a" * 250 + "b"), many)
    assert time.process_time() - began < 4


def test_globs_of_paths_match_these_paths_alone() -> None:
    paths = ("a[1]/conv*", "a1/conv2", "b")
    own = [Layer(path, "Dense", True, 10, 40, 40, 0, None, None, None) for path in paths]
    globs = globs_of(["a[1]/conv*", "b"])
    assert [layer.path for layer in matching(own, globs)] == ["a[1]/conv*", "b"]
    assert globs_of(["a,b"]) is None and globs_of(["x" * 600, "y" * 600]) is None
