"""The plugin's HTTP API over real event files; the fields that ``http_api.md`` lists are those of
real answers."""

import dataclasses
import pathlib
import re
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import requests_cases
from api_page import example
from reading_cases import (
    DEVICE,
    MIB,
    make_activations,
    make_samples,
    make_snapshot,
    write_small_run,
)
from servers import BASE, client_on, client_over, decode, multiplexer
from tensorboard.backend.event_processing import data_provider
from tensorboard.plugins import base_plugin
from werkzeug.test import Client

import tb_memplugin
from tb_memplugin.export import describe_run
from tb_memplugin.plugin import MemoryPlugin
from tb_memplugin.plugin_loader import MemoryLoader
from tb_memplugin.schema import LedgerRow
from tb_memplugin.server import DATA_ROUTES
from tb_memplugin.storage.write import RunWriter
from tb_memplugin.version import PLUGIN_NAME

DOCUMENT = pathlib.Path(tb_memplugin.__file__).parent / "server" / "http_api.md"
EXAMPLES = {
    section.partition("`")[0].partition("?")[0]: example(match[1])
    for section in DOCUMENT.read_text(encoding="utf-8").split("## `GET ")[1:]
    if (match := re.search(r"<!-- generated answer: (\w+) -->", section))
}
"""Route -> an example of the answer that the page lists."""
FIGURES = {
    name
    for row in re.findall(r"^\| (`.*?) \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    for name in re.findall(r"`(\w+)`", row)
}
"""The documented figures of answers."""
REQUESTS = {
    "runs": "runs",
    "answers": f"answers?run=frozen&device={DEVICE}",
    "devices": "devices?run=frozen",
    "overview": f"overview?run=frozen&device={DEVICE}",
    "pool": f"pool?run=frozen&device={DEVICE}",
    "host_memory": f"host_memory?run=frozen&device={DEVICE}",
    "snapshots": "snapshots?run=frozen",
    "snapshot": f"snapshot?run=frozen&device={DEVICE}&step=3",
    "ledger_totals": f"ledger_totals?run=frozen&device={DEVICE}",
    "layers": "layers?run=frozen",
    "activations": "activations?run=frozen",
    "timelines": "timelines?run=frozen",
    "timeline": f"timeline?run=frozen&device={DEVICE}&step=3",
    "maps": "maps?run=frozen",
    "map": f"map?run=frozen&device={DEVICE}&step=3",
    "oom": "oom?run=frozen",
    "fixes": "fixes?run=frozen&oom=0",
    "device_memory": f"device_memory?run=frozen&device={DEVICE}",
    "what_if": "what_if?run=requests&batch_size=64",
    "curve": "curve?run=requests",
    "batch_limit": "batch_limit?run=requests&capacity=8GiB",
    "plan": "plan?run=requests&budget=20MiB",
    "demand": "demand?run=requests",
}


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("runs")
    write_small_run(directory / "frozen", allocator=True)
    requests_cases.write_run(directory / "requests")
    return directory


@pytest.fixture(scope="module")
def client(logdir: pathlib.Path) -> Client:
    return client_on(logdir)


def answer(client: Client, request: str) -> Any:
    """The JSON of an answer, of columns their description without that of all columns."""
    response = client.get(BASE + request)
    assert response.status_code == 200, response.text
    if response.content_type == "application/json":
        return response.get_json()
    head, _ = decode(response.data)
    assert head.pop("rows") >= 0 and head.pop("columns")
    return head


def differences(example: Any, actual: Any, place: str) -> list[str]:
    """Where `actual` has other field names or types than `example`; null is not known and fits any
    type."""
    if example is None or actual is None:
        return []
    if example == {}:  # numbers by name: each answer has its own, of those that the page lists
        numbers = all(type(value) in (int, float) for value in actual.values())
        known = not place.endswith(".figures") or actual.keys() <= FIGURES
        return [] if numbers and known else [f"{place}: {actual}"]
    if isinstance(example, dict) and isinstance(actual, dict):
        found = (
            [f"{place}: fields {sorted(example.keys() ^ actual.keys())} differ"]
            if example.keys() != actual.keys()
            else []
        )
        return found + [
            d
            for key in example.keys() & actual.keys()
            for d in differences(example[key], actual[key], f"{place}.{key}")
        ]
    if isinstance(example, list) and isinstance(actual, list):
        return [
            d
            for at, item in enumerate(actual)
            if example
            for d in differences(example[0], item, f"{place}[{at}]")
        ]
    fits = type(example) is type(actual) or (type(example) is float and type(actual) is int)
    return (
        []
        if fits
        else [f"{place}: {type(actual).__name__} where the example has {type(example).__name__}"]
    )


@pytest.mark.parametrize("route", sorted(EXAMPLES))
def test_the_documented_fields_are_those_of_real_answers(client: Client, route: str) -> None:
    assert differences(EXAMPLES[route], answer(client, REQUESTS[route]), route) == []


def test_every_route_is_documented_and_every_documented_one_is_there(client: Client) -> None:
    assert EXAMPLES.keys() == REQUESTS.keys()
    routes = set(MemoryPlugin(base_plugin.TBContext()).get_plugin_apps())
    assert routes == {*(f"/{route}" for route in REQUESTS), "/index.js", "/static/*"}
    assert DATA_ROUTES.keys() == REQUESTS.keys()


def test_the_routes_say_what_inspect_says(client: Client, logdir: pathlib.Path) -> None:
    described = describe_run(tb_memplugin.load(logdir)["frozen"])
    run = answer(client, "runs")["runs"][0]
    assert [run[name] for name in ("sessions", "steps", "first_step", "last_step")] == [
        described[name] for name in ("sessions", "steps", "first_step", "last_step")
    ]
    assert {
        device["device"]: {key: device[key] for key in described["devices"][DEVICE]}
        for device in run["devices"]
    } == described["devices"]
    assert answer(client, "layers?run=frozen")["layers"] == described["layers"]
    compared = answer(client, "devices?run=frozen")
    assert compared == {"run": "frozen", "rolled_up": False, **described["compared"], "damage": []}
    for snapshot in described["snapshots"]:
        place = "&".join(f"{name}={snapshot[name]}" for name in ("device", "step", "phase"))
        request = f"snapshot?run=frozen&{place}"
        assert answer(client, request) == {"run": "frozen", **snapshot}


def test_the_answers_are_those_of_inspect_with_the_figures_of_other_routes(client, logdir) -> None:
    described = describe_run(tb_memplugin.load(logdir)["frozen"])["answers"]
    assert list(described) == [DEVICE]
    answers = answer(client, REQUESTS["answers"])["answers"]
    assert answers == described[DEVICE]
    failure = answer(client, "oom?run=frozen")["ooms"][-1]
    fits, growing, fragmented, changed = answers
    assert fits["status"] == "failed" and {
        fits["figures"][name] == failure[name] for name in fits["figures"]
    } == {True}
    assert fits["evidence"]["oom"] == fragmented["evidence"]["oom"] == 0
    assert growing["sentence"] == "No growth over 60 steps (under 2.0 MiB)"
    # The change's effect is that of the overview, zoomed or not.
    for query in ("", "&first_step=40", "&points=10"):
        head = answer(client, REQUESTS["overview"] + query)
        (unfreezing,) = [change for change in head["changes"] if change["became_trainable"]]
        for name in ("peak_before_bytes", "peak_after_bytes"):
            assert changed["figures"][name] == unfreezing[name]
    assert changed["figures"]["peak_before_bytes"] == 200 * MIB + 3  # of the nearest traced step
    # Without a device, as for a run without allocator data, nothing is known; an unknown one is an
    # error.
    assert {one["status"] for one in answer(client, "answers?run=frozen")["answers"]} == {"unknown"}
    assert client.get(BASE + "answers?run=frozen&device=GPU:7").status_code == 404


def test_rounding_that_sums_to_more_than_an_integer_is_answered(tmp_path: pathlib.Path) -> None:
    # GIVEN a stranger's ledger of 3,000 rows, each with the most bytes of rounding that a record
    # may hold
    rows = tuple(LedgerRow(f"layer_{at}", "activations", None, 1, 2**53 - 1) for at in range(3000))
    writer = RunWriter(tmp_path / "exp")
    writer.traced(dataclasses.replace(make_snapshot(3), ledger=rows, in_use_bytes=3000))
    writer.close()
    client = client_on(tmp_path)
    for route in ("overview", "ledger_totals"):
        assert client.get(f"{BASE}{route}?run=exp&device={DEVICE}").status_code == 200


def test_recorded_activations_of_a_span_keep_every_step(tmp_path: pathlib.Path) -> None:
    # GIVEN 1,000 steps of which a far view shows some forty
    writer = RunWriter(tmp_path / "exp")
    steps = np.arange(1000)
    writer.activations(
        make_activations(steps, ["a", "b"], np.stack([steps * 7, steps % 13], axis=1))
    )
    writer.close()
    client = client_on(tmp_path)

    def shown(query: str) -> tuple[dict[str, Any], dict[str, Any]]:
        return decode(client.get(f"{BASE}activations?run=exp&points=20{query}").data)

    assert len(shown("")[1]["step"]) < 60
    # THEN the steps of a zoom come whole, or reduced by themselves, with their ends
    head, columns = shown("&first_step=500&last_step=529")
    assert columns["step"].tolist() == list(range(500, 530)) and head["total_rows"] == 30
    assert columns["layer/0"].tolist() == [7 * step for step in range(500, 530)]
    head, columns = shown("&first_step=500")
    assert head["total_rows"] == 500 and [columns["step"][0], columns["step"][-1]] == [500, 999]
    assert shown("&last_step=3")[1]["step"].tolist() == [0, 1, 2, 3]
    assert shown("&first_step=2000")[1]["step"].tolist() == []


def test_the_layers_of_a_step_are_those_of_then(client: Client) -> None:
    assert [
        answer(client, f"layers?run=frozen&step={step}")["step"] for step in (0, 29, 30, 10**9)
    ] == [0, 0, 30, 30]


PLACE = f"run=frozen&device={DEVICE}"
BAD = {
    "runs": "x=1 run=frozen",
    "overview": f"- run=frozen device={DEVICE} run=&device=x run=frozen&device= run=frozen&{PLACE} "
    f"{PLACE}&phase=test {PLACE}&phase=train&phase=train {PLACE}&first_step=-1 "
    f"{PLACE}&first_step=1e3 {PLACE}&last_step={'9' * 5000} {PLACE}&first_step=5&last_step=4 "
    f"{PLACE}&points=9 {PLACE}&points=10001 {PLACE}&points= {PLACE}&stpe=1 "
    f"run={'x' * 100_000}&device={DEVICE}",
    "pool": f"- run=frozen device={DEVICE} {PLACE}&points=9",
    "snapshots": "- run= run=frozen&device= run=frozen&run=frozen run=frozen&step=1",
    "snapshot": f"{PLACE} run=frozen&step=1 device=CPU:0&step=1 {PLACE}&step=a "
    f"{PLACE}&step=1&step=2 {PLACE}&step=3&phase=",
    "timelines": "- run= run=frozen&device= run=frozen&step=1",
    "timeline": f"{PLACE} run=frozen&step=3 {PLACE}&step=-3 {PLACE}&step=3&phase=lunch "
    f"{PLACE}&step=3&points=10",
    "layers": "- run=frozen&step=x run=frozen&step=-0 run=frozen&step=%F3%A0 "
    "run=frozen&phase=train",
    "activations": "- run=frozen&points=0 run=frozen&points=%00 run=frozen&first_step=x "
    "run=frozen&phase=train run=frozen&first_step=5&last_step=4",
    "what_if": "- run=requests&device= run=requests&batch_size= run=requests&batch_size=4.5 "
    "run=requests&step=3 run=requests&batch_size=4&batch_size=4 run=requests&capacity= "
    f"run=requests&capacity=-1 run=requests&freeze=nothing run=requests&freeze={'*a' * 480} "
    "run=requests&unfreeze=*,nothing run=requests&optimizer=none "
    "run=requests&precision=float8",
    "curve": "- run=requests&device= run=requests&batch_size=4 run=requests&freeze=nothing "
    "run=requests&capacity=-1",
    "batch_limit": "- run=requests&device= run=requests&batch_size=4 run=requests&freeze=nothing"
    " run=requests&capacity= run=requests&optimizer=none",
    "demand": "- run=requests&device= run=requests&step=3",
    "plan": "- run=requests&device= run=requests&budget= run=requests&budget=much "
    "run=requests&budget=2PiB run=requests&step=3",
    "answers": f"- run= run=frozen&device= run=frozen&phase=test {PLACE}&step=3",
    "ledger_totals": f"- run=frozen device={DEVICE} {PLACE}&phase=test {PLACE}&layer= "
    f"{PLACE}&layer={'x' * 5000} {PLACE}&session= {PLACE}&step=3",
}
"""Route to wrong queries; a dash for none."""


@pytest.mark.parametrize(
    ("route", "query"), [(route, query) for route in BAD for query in BAD[route].split()]
)
def test_a_wrong_parameter_is_a_400_with_a_sentence(client: Client, route: str, query: str) -> None:
    response = client.get(f"{BASE}{route}?{query.removeprefix('-')}")
    assert response.status_code == 400 and response.content_type.startswith("text/plain")
    assert 10 < len(response.text) < 300 and response.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("capacity=much", "capacity"),
        ("batch_size=0", "batch_size"),
        ("optimizer=x", "optimizer"),
        ("x=1", None),
    ],
)
def test_an_error_about_one_condition_names_it(
    client: Client, query: str, parameter: str | None
) -> None:
    response = client.get(f"{BASE}what_if?run=frozen&{query}")
    assert response.status_code == 400 and response.headers.get("X-Parameter") == parameter


ABSENT = f"""
overview?run=no&device=CPU:0 overview?run=frozen&device=GPU:9 snapshots?run=no
snapshots?run=frozen&device=GPU:9 snapshot?{PLACE}&step=4 snapshot?{PLACE}&step=3&phase=validation
snapshot?run=no&device=CPU:0&step=3 timelines?run=no timeline?run=no&device=CPU:0&step=3
timeline?{PLACE}&step=41 timeline?run=frozen&device=GPU:9&step=3
timeline?{PLACE}&step=3&phase=validation layers?run=no ledger_totals?run=no&device=CPU:0
ledger_totals?run=frozen&device=GPU:9 ledger_totals?{PLACE}&session=none
activations?run=..%2F..%2Fetc what_if?run=no plan?run=no&budget=8GiB demand?run=no
demand?run=requests&device=GPU:9 plan?run=requests&device=GPU:9 what_if?run=requests&device=GPU:9
static/no.js static/../plugin.py static/%2e%2e/plugin.py static/..%2fplugin.py static//etc/passwd
"""


@pytest.mark.parametrize("request_", ABSENT.split())
def test_what_is_not_there_is_a_404_with_a_sentence(client: Client, request_: str) -> None:
    response = client.get(BASE + request_)
    assert response.status_code == 404 and 10 < len(response.text) < 300


def test_only_get_is_answered(client: Client) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert client.open(BASE + "runs", method=method).status_code == 405


def test_a_plugin_without_a_provider_is_inactive_and_says_so() -> None:
    # GIVEN a context with every field None
    plugin = MemoryLoader().load(base_plugin.TBContext())
    assert plugin.is_active() is False
    response = Client(plugin.get_plugin_apps()["/runs"]).get("/")
    assert response.status_code == 404 and "no data provider" in response.text


def test_a_provider_that_fails_is_a_503_with_a_sentence() -> None:
    class Broken:
        def list_tensors(self, *args: Any, **kwargs: Any) -> Any:
            raise ConnectionError("the data server is gone")

    plugin = MemoryLoader().load(base_plugin.TBContext(data_provider=Broken()))
    response = Client(plugin.get_plugin_apps()["/runs"]).get("/")
    assert response.status_code == 503 and "cannot be listed now" in response.text


def test_the_loader_asks_for_all_events_unless_the_user_said_how_many() -> None:
    class Flags:
        samples_per_plugin: Mapping[str, int] | None = None

    flags = Flags()
    MemoryLoader().fix_flags(flags)
    assert flags.samples_per_plugin == {PLUGIN_NAME: 0}
    flags.samples_per_plugin = {PLUGIN_NAME: 5, "scalars": 7}
    MemoryLoader().fix_flags(flags)
    assert flags.samples_per_plugin == {PLUGIN_NAME: 5, "scalars": 7}
    MemoryLoader().fix_flags(object())
    MemoryLoader().fix_flags(None)


def test_fifty_clients_during_reloads_see_whole_answers(tmp_path: pathlib.Path) -> None:
    # GIVEN a training that writes while TensorBoard reloads and fifty pages poll
    writer = RunWriter(tmp_path / "exp")
    writer.samples(make_samples(range(10), [100] * 10))
    writer.flush()
    reading = multiplexer(tmp_path)
    client = client_over(data_provider.MultiplexerDataProvider(reading, str(tmp_path)))
    wrong: list[str] = []

    def poll(number: int) -> None:
        for _ in range(4):
            request = f"overview?run=exp&device={DEVICE}" if number % 2 else "runs"
            response = client.get(BASE + request)
            if response.status_code != 200:
                wrong.append(f"{response.status_code} {response.text}")
            elif number % 2:
                head, columns = decode(response.data)
                steps = columns["step"]
                # Flushes are of ten steps whose peaks are all the same, and rise with the flush.
                if (
                    len(steps) % 10
                    or steps.tolist() != list(range(len(steps)))
                    or (columns["peak_bytes"] != 100 + steps // 10).any()
                ):
                    wrong.append(f"{head['total_rows']} rows, mixed")

    threads = [threading.Thread(target=poll, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for first in range(10, 100, 10):
        writer.samples(make_samples(range(first, first + 10), [100 + first // 10] * 10))
        writer.flush()
        reading.Reload()
    for thread in threads:
        thread.join(timeout=120)
    writer.close()
    assert wrong == [] and not any(thread.is_alive() for thread in threads)
