"""Run directories from strangers: bounded cost, a sentence, and nothing wrong shown."""

import json
import pathlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from reading_cases import (
    DEVICE,
    MIB,
    make_activations,
    make_layer,
    make_samples,
    make_snapshot,
    make_table,
    write_frames,
)
from servers import BASE, client_on

from tb_memplugin import load
from tb_memplugin.cli.report import MAX_DATA_BYTES, collect, render
from tb_memplugin.storage.frames import codec, frame_of

MARKUP = "<img src=x onerror=alert(1)></script>"
Frames = list[tuple[str, int, bytes]]


def frame(
    stream: str, record: Any, sequence: int = 0, last: int = 0, session: str = "s"
) -> tuple[str, int, bytes]:
    kind = {"kind": "layers"} if stream == "meta" else {}
    data = codec.encode(frame_of(stream, record, sequence, **kind))
    return f"{stream}/{session}/{sequence}", last, data


def table(change: str, layers: tuple[Any, ...], optimizer: str | None, size: int) -> Any:
    return type(make_table(0, unfrozen=True))(0, 0.0, change, layers, optimizer, size, size)


LARGEST = 2**53 - 1
CASES: dict[str, Callable[[], Frames]] = {
    "thousands of tags and sessions": lambda: [
        frame("samples", make_samples([at], [at]), 0, at, f"session{at}") for at in range(3000)
    ],
    "devices of 4,096 characters, many": lambda: [
        frame("samples", make_samples([at], [at], device=f"{at}" + "x" * 4000), at, at)
        for at in range(300)
    ],
    "layer names with markup, of a megabyte, a thousand deep": lambda: [
        frame("meta", table(MARKUP, (make_layer("/".join(["loop"] * 900), True, 1),) * 2, None, 0)),
        frame("snapshots", make_snapshot(0, device=MARKUP)),
        frame("activations", make_activations([0], [MARKUP, "x" * 1_000_000], [[1, 2]])),
    ],
    "the largest figures everywhere": lambda: [
        frame("meta", table("", (make_layer("a", True, 2**50),) * 3000, "x" * 4000, LARGEST)),
        frame("samples", make_samples([0, LARGEST], [LARGEST] * 2), 0, LARGEST),
        frame(
            "activations", make_activations([0], [f"{n}" for n in range(2000)], [[LARGEST] * 2000])
        ),
    ],
    "tags of no form": lambda: [
        (tag, 0, b"x") for tag in ("", "../../etc", MARKUP, "samples/s/999999999999")
    ],
}


@pytest.mark.parametrize("case", sorted(CASES))
@pytest.mark.timeout(60)
def test_a_hostile_directory_costs_little_and_harms_nothing(
    case: str, tmp_path: pathlib.Path
) -> None:
    # GIVEN a hostile run beside an honest one
    write_frames(tmp_path / "hostile" / "memory", CASES[case]())
    write_frames(
        tmp_path / "honest" / "memory", [frame("samples", make_samples(range(5), [MIB] * 5), 0, 4)]
    )
    began = time.process_time()
    # WHEN it is loaded, and asked for through the plugin
    runs = load(tmp_path)
    assert len(runs["honest"].samples) == 5 and runs["honest"].damage == ()
    if "hostile" in runs:
        assert all(len(sentence) < 1000 for sentence in runs["hostile"].damage)
    client = client_on(tmp_path)
    requests = ["runs", "layers?run=hostile", "snapshots?run=hostile", "activations?run=hostile"]
    requests += [
        f"overview?run=hostile&device={DEVICE}",
        f"snapshot?run=hostile&device={DEVICE}&step=0",
    ]
    answers = {request: client.get(BASE + request) for request in requests}
    # THEN every answer is one, the honest run is whole, and it took seconds
    assert {response.status_code for response in answers.values()} <= {200, 404}
    shown = {run["run"]: run for run in answers["runs"].get_json()["runs"]}
    assert shown["honest"]["steps"] == 5
    for response in answers.values():
        if response.content_type == "application/json":
            json.loads(response.data, parse_constant=lambda text: pytest.fail(f"{text} in JSON"))
            assert (
                b"<script" not in response.data
                or response.headers["X-Content-Type-Options"] == "nosniff"
            )
    # AND the report of both is bounded too
    report = render(collect(tmp_path), "")
    assert len(report) < 1.1 * MAX_DATA_BYTES and report.count("<script") == 2
    assert time.process_time() - began < 30
