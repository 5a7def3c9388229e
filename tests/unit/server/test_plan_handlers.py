"""Responses of the plan route."""

import json
import pathlib
import threading
from typing import Any

import pytest
import requests_cases
from reading_cases import DEVICE, MIB, make_oom

import tb_memplugin
from tb_memplugin.analysis.plan_answer import describe_plan
from tb_memplugin.reader.file_source import FileSource
from tb_memplugin.reader.run_reader import Reader
from tb_memplugin.server import plan_handlers
from tb_memplugin.server.handlers import Handlers
from tb_memplugin.server.routes import DATA_ROUTES


@pytest.fixture
def logdir(tmp_path: pathlib.Path) -> pathlib.Path:
    requests_cases.write_run(tmp_path / "traced")
    return tmp_path


def ask(handlers: Handlers, logdir: pathlib.Path, **values: str) -> dict[str, Any]:
    """The answer, as JSON."""
    accepted, answer = DATA_ROUTES["plan"]
    assert values.keys() <= set(accepted)
    found: dict[str, Any] = json.loads(
        json.dumps(answer(handlers, FileSource(logdir), {"run": "traced", **values}), allow_nan=False)
    )
    return found


def test_the_answer_is_that_of_the_library(logdir: pathlib.Path) -> None:
    answer = ask(Handlers(Reader()), logdir, device=DEVICE, budget="20MiB")
    plan = tb_memplugin.plan(tb_memplugin.load(logdir)["traced"], budget="20MiB")
    expected = json.loads(json.dumps(describe_plan(plan)))
    assert {name: answer[name] for name in expected} == expected
    assert sum(row["bytes"] for row in answer["ledger"]) == answer["peak_bytes"]
    highest = max(one.snapshot.in_use_bytes for one in requests_cases.make_traced().values())
    assert answer["measured"]["in_use_bytes"] == highest
    assert sum(row["bytes"] for row in answer["measured"]["ledger"]) == highest


def test_the_budget_is_by_default_the_capacity(logdir: pathlib.Path) -> None:
    answer = ask(Handlers(Reader()), logdir)
    assert answer["budget_bytes"] == requests_cases.CAPACITY and answer["fits"] is True
    assert [option["kind"] for option in answer["options"]] == ["none"]


def test_a_batch_that_ran_out_of_memory_does_not_fit_into_the_capacity(tmp_path: pathlib.Path) -> None:
    # GIVEN a run of batch 4 whose last step, with batch 12, ran out of memory, though its simulated peak is lower
    failed = make_oom(20)
    object.__setattr__(failed, "batch_size", 12)
    object.__setattr__(failed, "capacity_bytes", requests_cases.CAPACITY)
    requests_cases.write_run(tmp_path / "traced", oom=failed)
    handlers = Handlers(Reader())
    answer = ask(handlers, tmp_path)
    (same, *others) = answer["options"]
    assert same["batch_size"] == 12 and same["high_bytes"] < requests_cases.CAPACITY and not same["fits"]
    assert answer["fits"] is True and any(option["fits"] for option in others)
    assert ask(handlers, tmp_path, budget="1GiB")["options"][0]["fits"] is True


def test_answers_are_computed_once(logdir: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers, real, asked = Handlers(Reader()), plan_handlers.plan_for, []
    entered, go_on = threading.Event(), threading.Event()

    def slow(run: Any, device: str, budget: int | None) -> Any:
        asked.append(budget)
        entered.set()
        assert go_on.wait(20)
        return real(run, device, budget)

    monkeypatch.setattr(plan_handlers, "plan_for", slow)
    threads = [threading.Thread(target=ask, args=(handlers, logdir), kwargs={"budget": "20MiB"}) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert entered.wait(20)
    # Other routes answer meanwhile.
    assert handlers.snapshots(FileSource(logdir), "traced", None)["snapshots"]
    go_on.set()
    for thread in threads:
        thread.join(20)
    ask(handlers, logdir, budget="20MiB")
    assert asked == [20 * MIB]
