"""Memory of earlier optimizers and models of the process is named by layer, with the sizes of their
variables."""

from typing import Any

import pytest
from child import run_child

from tb_memplugin.cli import main

CODE = """
import gc, keras, numpy as np, tb_memplugin

x = np.zeros((96, 300), "float32")
sizes = {}


def make(name, width):
    layers = [
        keras.layers.Dense(width, name=f"{name}_a"),
        keras.layers.Dense(300, name=f"{name}_b"),
    ]
    return keras.Sequential([keras.Input((300,)), *layers], name=name)


def fit(model, optimizer, callbacks):
    model.compile(optimizer, "mse")
    model.fit(x, x, batch_size=32, verbose=0, callbacks=callbacks)
    optimizer = model.optimizer
    return {v.path: v.numpy().nbytes for v in optimizer.variables if v.ndim}


def ledger(directory):
    (run,) = tb_memplugin.load(directory).values()
    last = run.snapshots[-1]
    return {
        "rows": [(row.layer, row.category, row.bytes) for row in last.ledger],
        "step": last.step,
        "in_use": last.in_use_bytes,
        "findings": [one.sentence for one in run.findings],
    }


first, second = sys.argv[1:]
model = make("unseen", 200)
unseen = fit(model, "adam", [])
unseen_layers = sorted({v.path.rpartition("/")[0] for v in model.weights})
del model
gc.collect()
net = make("net", 250)
callback = tb_memplugin.MemoryCallback(first, trace_steps=[1, 4, 7])
sizes["adam"] = fit(net, "adam", [callback])
sizes["rmsprop"] = fit(net, "rmsprop", [callback])
fit(net, "sgd", [callback])
one = ledger(first)
weights = {layer.name: sum(v.numpy().nbytes for v in layer.variables) for layer in net.layers}
del net, callback
gc.collect()
fit(make("other", 100), "sgd", [tb_memplugin.MemoryCallback(second, trace_steps=[1])])
answer(
    {
        "sizes": sizes,
        "unseen": unseen,
        "unseen_layers": unseen_layers,
        "weights": weights,
        "one": one,
        "two": ledger(second),
    }
)
"""


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("former")
    return {
        **run_child(CODE, str(directory / "first"), str(directory / "second")),
        "directory": str(directory),
    }


def requested(ledger: Any, name: str, category: str) -> dict[str, int]:
    """Layer path below a former name to its bytes."""
    rows = [
        row
        for row in ledger["rows"]
        if (row[0] or "").startswith(f"{name}/") and row[1] == category
    ]
    return {path.removeprefix(f"{name}/"): size for path, _, size in rows}


@pytest.mark.parametrize(
    ("optimizer", "name"),
    [("adam", "Adam replaced at step 3"), ("rmsprop", "RMSprop replaced at step 6")],
)
def test_slots_of_a_replaced_optimizer_are_its_own_by_layer(
    answer: Any, optimizer: str, name: str
) -> None:
    slots = requested(answer["one"], name, "optimizer_state")
    of_variables = answer["sizes"][optimizer]
    for layer in ("net_a", "net_b"):
        assert slots[f"net/{layer}"] == sum(
            size for path, size in of_variables.items() if layer in path
        )
    assert sum(slots.values()) == sum(of_variables.values())


def test_a_model_that_was_gone_before_recording_is_named_by_its_variables(answer: Any) -> None:
    slots = requested(answer["one"], "Adam, no longer used", "optimizer_state")
    assert slots == {path.removeprefix("adam/"): size for path, size in answer["unseen"].items()}
    assert (
        sorted(requested(answer["one"], "earlier model, no longer used", "weights"))
        == answer["unseen_layers"]
    )


def test_the_layers_of_an_earlier_model_are_its_own(answer: Any) -> None:
    weights = requested(answer["two"], "net, no longer used", "weights")
    assert weights == answer["weights"]
    slots = requested(answer["two"], "net, no longer used", "optimizer_state")
    whole = sum(answer["sizes"]["adam"].values()) + sum(answer["sizes"]["rmsprop"].values())
    assert sum(slots.values()) == whole


@pytest.mark.parametrize("run", ["one", "two"])
def test_nothing_is_unattributed_and_the_finding_names_the_largest(answer: Any, run: str) -> None:
    ledger = answer[run]
    unattributed = sum(size for _, category, size in ledger["rows"] if category == "unattributed")
    assert unattributed <= 0.001 * ledger["in_use"]
    (finding,) = ledger["findings"]
    assert "belong to optimizers and models that the program no longer uses" in finding
    assert ("Adam replaced at step 3" if run == "one" else "net, no longer used") in finding


def test_they_are_no_growth_in_the_list_of_runs(
    answer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["inspect", answer["directory"]])
    statuses = {
        line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines()[1:3]
    }
    assert statuses == {"first": "ok", "second": "ok"}
