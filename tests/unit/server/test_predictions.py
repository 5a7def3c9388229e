"""The handler of the what-if route on a run with recorded requests, and on one without."""

import dataclasses
import json
import pathlib
import threading
from typing import Any

import pytest
import requests_cases
from handlers import Handlers
from reading_cases import DEVICE, MIB, make_oom, write_small_run

import tb_memplugin
from tb_memplugin import fit
from tb_memplugin.cli import main
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.fit import FITS, Conditions, Predictor, advice, describe_what_if
from tb_memplugin.schema import as_json, format_bytes
from tb_memplugin.server import DATA_ROUTES
from tb_memplugin.storage import Reader
from tb_memplugin.storage.files import FileSource

FAILED = dataclasses.replace(make_oom(18), capacity_bytes=100 * MIB, op=None, batch_size=48)


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("runs")
    requests_cases.write_run(directory / "traced")
    requests_cases.write_run(directory / "failed", oom=FAILED)
    write_small_run(directory / "without")
    return directory


@pytest.fixture(scope="module")
def handlers() -> Handlers:
    return Handlers(Reader())


def ask(
    handlers: Handlers, logdir: pathlib.Path | FileSource, route: str = "what_if", **values: str
) -> dict[str, Any]:
    source = logdir if isinstance(logdir, FileSource) else FileSource(logdir)
    assert values.keys() <= set(DATA_ROUTES[route].accepted)
    given = {"run": "traced", **values}
    found: dict[str, Any] = json.loads(
        json.dumps(handlers.ask(route, source, given), allow_nan=False)
    )
    return found


@pytest.mark.parametrize(
    ("values", "conditions"),
    [
        ({"batch_size": "16"}, Conditions(batch_size=16)),
        ({"capacity": "24 MiB"}, Conditions(capacity_bytes=24 * MIB)),
        ({"freeze": "*conv2", "optimizer": "SGD"}, Conditions(freeze="*conv2", optimizer="sgd")),
        (
            {"unfreeze": "*conv1", "precision": "mixed_float16"},
            Conditions(unfreeze="*conv1", precision="mixed_float16"),
        ),
        ({"freeze": "", "optimizer": ""}, Conditions()),
    ],
)
def test_the_answer_is_that_of_the_library(handlers, logdir, values, conditions) -> None:
    answer = ask(handlers, logdir, device=DEVICE, **values)
    run = tb_memplugin.load(logdir)["traced"]
    expected = describe_what_if(fit.answer_of(Predictor.of(run, DEVICE), conditions))
    assert {name: answer[name] for name in expected} == json.loads(json.dumps(expected))


def test_a_run_that_failed_is_asked_about_the_batch_that_failed(handlers, tmp_path, capsys) -> None:
    # GIVEN a run of batch 4 whose last step, with batch 12, ran out of memory, though a simulation
    # of it may pass
    failed = dataclasses.replace(
        make_oom(20), batch_size=12, capacity_bytes=requests_cases.CAPACITY
    )
    requests_cases.write_run(tmp_path / "traced", oom=failed)
    answers = {
        size: ask(handlers, tmp_path, **({"batch_size": size} if size else {}))
        for size in ("", "12", "4")
    }
    # THEN that batch is the default; it does not fit, and the one that ran does
    assert [(one["batch_size"], one["fits"]) for one in answers.values()] == [
        (12, False),
        (12, False),
        (4, True),
    ]
    assert answers[""]["assumptions"][0] == (
        "Recorded: batch size 12 ran out of memory in step 20, with 256 MiB."
    )
    assert (
        answers[""]["conditions"]["batch_size"] is None and answers[""]["largest_batch_size"] == 11
    )
    assert 12 in [point["batch_size"] for point in ask(handlers, tmp_path, "curve")["curve"]]
    (same, *others) = ask(handlers, tmp_path, "plan")["options"]
    assert (
        same["batch_size"] == 12 and not same["fits"] and any(option["fits"] for option in others)
    )
    assert main(["what-if", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "CPU:0: batch size 12, capacity 256 MiB" in printed and "fits: no" in printed


def test_every_view_has_one_verdict_and_one_peak(handlers, tmp_path, capsys) -> None:
    # GIVEN a run whose last step, with batch 48, did not fit into 100 MiB
    limit = 100 * MIB
    failed = dataclasses.replace(make_oom(20), batch_size=48, capacity_bytes=limit, op=None)
    requests_cases.write_run(tmp_path / "traced", capacity=limit, oom=failed)
    run = tb_memplugin.load(tmp_path)["traced"]
    post_mortem = next(fix.batch_size for fix in run.ooms[-1].fixes if fix.kind == "batch")
    largest = ask(handlers, tmp_path)["largest_batch_size"]
    curve = {point["batch_size"]: point for point in ask(handlers, tmp_path, "curve")["curve"]}
    assert largest == post_mortem and 4 < largest < 48
    said = {}
    for size in (1, 4, largest - 1, largest, largest + 1, largest + 2, largest + 4, 40, 48, 64):
        answer = ask(handlers, tmp_path, batch_size=str(size))
        point = curve.get(size, answer)
        library = tb_memplugin.what_if(run, batch_size=size)
        same = tb_memplugin.plan(run, budget=limit, batch_size=size).options[0]
        assert main(["what-if", str(tmp_path), "--batch-size", str(size)]) == (
            1 if answer["fits"] is False else 0
        )
        printed = capsys.readouterr().out
        span = {name: answer[name] for name in ("low_bytes", "peak_bytes", "high_bytes")}
        for other in (point, dataclasses.asdict(library.prediction), dataclasses.asdict(same)):
            assert {name: other[name] for name in span} == span, size
        assert answer["fits"] is point["fits"] is library.fits and same.fits is (
            library.fits is True
        ), size
        assert f"fits: {FITS[library.fits]}" in printed and library.sentence == answer["sentence"]
        assert (
            format_bytes(library.peak_bytes) in printed and answer["largest_batch_size"] == largest
        )
        said[size] = answer["fits"]
    assert len(said.keys() & curve.keys()) >= 4 and {largest, 48} <= curve.keys()
    # AND what ran fits, what failed does not, and every size up to the largest one fits
    assert said[4] is True and said[48] is False
    assert [size for size, fits in said.items() if fits] == [
        size for size in said if size <= largest
    ]


@pytest.mark.parametrize("conditions", [{}, {"optimizer": "sgd"}])
@pytest.mark.parametrize("capacity", ["48MiB", "100MiB", "8GiB"])
def test_a_capacity_has_the_batch_sizes_of_the_verdicts(
    handlers, logdir, capacity, conditions
) -> None:
    limit = ask(handlers, logdir, "batch_limit", capacity=capacity, **conditions)
    largest, most = limit["largest_batch_size"], limit["may_fit_batch_size"]
    run = tb_memplugin.load(logdir)["traced"]
    said = {
        size: tb_memplugin.what_if(run, capacity=capacity, batch_size=size, **conditions)
        for size in (largest, largest + 1, most, most + 1)
    }
    assert [said[largest].fits, said[largest + 1].fits] == [
        True,
        False if largest == most else None,
    ]
    assert said[most].fits is (True if largest == most else None) and said[most + 1].fits is False
    assert said[1 + largest].largest_batch_size == largest
    assert limit["peak_bytes"] == said[largest].peak_bytes and limit["reason"] is None
    assert (
        limit["low_bytes"] <= limit["peak_bytes"] <= limit["high_bytes"] <= limit["capacity_bytes"]
    )


def test_a_capacity_that_is_not_enough_for_one_example_has_none(handlers, logdir) -> None:
    limit = ask(handlers, logdir, "batch_limit", capacity="1MiB")
    assert (limit["largest_batch_size"], limit["peak_bytes"], limit["reason"]) == (0, None, None)


def test_a_verdict_does_not_wait_for_a_longer_simulation(logdir: pathlib.Path, monkeypatch) -> None:
    # GIVEN a curve that simulates until a verdict has been given
    handlers, source = Handlers(Reader()), FileSource(logdir)
    begun, end, order = threading.Event(), threading.Event(), list[str]()
    real = fit.curve

    def slow(predictor: Predictor, conditions: Conditions) -> Any:
        while not end.is_set():
            predictor.case(conditions)  # as between two simulated steps
            fit.between_steps.get()()
            begun.set()
        order.append("curve")
        return real(predictor, conditions)

    monkeypatch.setattr("tb_memplugin.server.predictions.curve_of", slow)
    curve = threading.Thread(target=ask, args=(handlers, source, "curve"))
    curve.start()
    assert begun.wait(60)
    # WHEN it is asked, and asked for a second time meanwhile
    again = threading.Thread(target=ask, args=(handlers, source, "curve"))
    again.start()
    found: list[dict[str, Any]] = []

    def verdict() -> None:
        found.append(ask(handlers, source, batch_size="8"))
        order.append("verdict")

    asking = threading.Thread(target=verdict)
    asking.start()
    asking.join(60)
    end.set()
    curve.join()
    again.join()
    # THEN the verdict came first, and the curve is computed once
    assert found and found[0]["batch_size"] == 8 and order == ["verdict", "curve"]


def test_simulated_steps_give_way(logdir: pathlib.Path) -> None:
    calls = []
    token = fit.between_steps.set(lambda: calls.append(1))
    try:
        Predictor.of(tb_memplugin.load(logdir)["traced"], DEVICE).predict(Conditions(batch_size=8))
    finally:
        fit.between_steps.reset(token)
    assert len(calls) > 20


def test_a_run_without_requests(handlers: Handlers, logdir: pathlib.Path) -> None:
    answer = ask(handlers, logdir, run="without")
    assert answer["method"] == "unknown" and answer["measured"] is None
    assert ask(handlers, logdir, "curve", run="without")["curve"] == []
    limit = ask(handlers, logdir, "batch_limit", run="without", capacity="8GiB")
    assert (
        limit.pop("reason") == answer["assumptions"][0] and limit.pop("capacity_bytes") == 8 << 30
    )
    assert {name for name, value in limit.items() if value is not None} == {"run", "device"}
    assert answer["fits"] is None and answer["largest_batch_size"] is None
    assert answer["assumptions"][0].startswith(
        "Unknown: the run has no traced training step with its requests."
    )


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"batch_size": "0"}, "batch_size"),
        ({"batch_size": "٤"}, "batch_size"),
        ({"capacity": "much"}, "a capacity is a size with its unit, such as 24GiB"),
        ({"freeze": "conv2"}, "the nearest is 'net/conv2'"),
        (
            {"unfreeze": "*, NET/conv1"},
            "unfreeze: no layer with weights has a path like 'NET/conv1'",
        ),
        ({"freeze": "a" * 1001}, "freeze has at most 1,000 characters"),
        ({"precision": "int8"}, "precision is one of float32"),
        ({"device": ""}, "device"),
        ({"run": "other"}, "no run"),
        ({"device": "GPU:7"}, "no device 'GPU:7'"),
        ({"route": "fixes", "run": "failed", "oom": "1"}, "no failed allocation 1; it has 1"),
        ({"route": "fixes", "run": "failed", "oom": "-1"}, "oom"),
    ],
)
def test_bad_requests(handlers, logdir, values, sentence) -> None:
    error = NotFoundError if sentence.startswith("no ") else RequestError
    with pytest.raises(error, match=sentence) as raised:
        ask(handlers, logdir, **values)
    if values.keys() & {"freeze", "unfreeze"}:
        assert raised.value.parameter in values


def test_answers_are_computed_once_and_one_at_a_time(
    logdir: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers, source = Handlers(Reader()), FileSource(logdir)
    cached = ask(handlers, source)
    asked: list[Conditions] = []
    begun, end = threading.Event(), threading.Event()
    real = fit.answer_of

    def slow(predictor: Predictor, conditions: Conditions) -> Any:
        asked.append(conditions)
        begun.set()
        assert end.wait(60)
        return real(predictor, conditions)

    monkeypatch.setattr("tb_memplugin.server.predictions.answer_of", slow)
    threads = [
        threading.Thread(target=ask, args=(handlers, source), kwargs={"batch_size": "8"})
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    assert begun.wait(60)
    # WHEN others ask meanwhile THEN a cached answer and another route do not wait
    found: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: found.append(ask(handlers, source)))
    asking.start()
    asking.join(20)  # forever, if it waits for the other one
    is_answered = found == [cached]
    snapshots = handlers.snapshots(source, "traced", None)["snapshots"]
    end.set()
    for thread in (*threads, asking):
        thread.join()
    assert is_answered and snapshots and asked == [Conditions(batch_size=8)]


def test_the_plan_is_that_of_the_library(logdir: pathlib.Path) -> None:
    answer = ask(Handlers(Reader()), logdir, "plan", device=DEVICE, budget="20MiB")
    plan = tb_memplugin.plan(tb_memplugin.load(logdir)["traced"], budget="20MiB")
    expected = json.loads(json.dumps(as_json(plan)))
    assert {name: answer[name] for name in expected} == expected
    assert sum(row["bytes"] for row in answer["ledger"]) == answer["peak_bytes"]


def test_what_was_measured_is_compared_with_only_at_the_same_batch_size(handlers, logdir) -> None:
    highest = max(one.snapshot.in_use_bytes for one in requests_cases.make_traced().values())
    measured = ask(handlers, logdir)["measured"]
    assert measured["in_use_bytes"] == highest == sum(row["bytes"] for row in measured["ledger"])
    assert ask(handlers, logdir, batch_size="16")["measured"] is None


def test_a_plan_changes_the_training_at_the_batch_size_that_was_asked(handlers, logdir) -> None:
    answer = ask(handlers, logdir, "plan", device=DEVICE, budget="20MiB", batch_size="16")
    same = ask(handlers, logdir, batch_size="16")
    assert (
        answer["unchanged_peak_bytes"] == same["peak_bytes"] == answer["options"][0]["peak_bytes"]
    )
    assert answer["options"][0]["sentence"] == "no change: with batch size 16"


def test_the_fixes_are_those_of_the_library_and_computed_once(logdir, monkeypatch) -> None:
    (oom,) = tb_memplugin.load(logdir)["failed"].ooms
    assert {"batch", "limit"} <= {fix.kind for fix in oom.fixes}
    calls = []
    real = advice
    monkeypatch.setattr(
        "tb_memplugin.server.predictions.advice", lambda *parts: calls.append(parts) or real(*parts)
    )
    handlers, source = Handlers(Reader()), FileSource(logdir)
    expected = {
        "run": "failed",
        "oom": 0,
        "fixes": [dataclasses.asdict(fix) for fix in oom.fixes],
        "note": None,
    }
    failed = ask(handlers, source, run="failed")
    expected["unchanged"] = {
        name: failed[name] for name in ("peak_bytes", "low_bytes", "high_bytes")
    }
    for _ in range(2):
        assert ask(handlers, source, "fixes", run="failed", oom="0") == expected
    assert len(calls) == 1


def test_the_figures_of_a_failure_do_not_wait_for_its_fixes(logdir, monkeypatch) -> None:
    monkeypatch.setattr(
        "tb_memplugin.server.predictions.advice", lambda *parts: pytest.fail("simulated")
    )
    (oom,) = ask(Handlers(Reader()), logdir, "oom", run="failed")["ooms"]
    assert oom["batch_size"] == 48 and "fixes" not in oom
