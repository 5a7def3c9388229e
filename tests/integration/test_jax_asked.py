"""Answers of XLA's compiler to `probe`, `plan` and `largest_batch_size` on JAX against its plan of
trainings that really ran, each in a process of its own."""

import importlib.util
import json
import pathlib

import pytest
from test_jax import BLOCKED, python
from test_jax_what_if import TRAINED

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="needs jax, as of the test requirements"
)

MODELS = (
    TRAINED[: TRAINED.index("BATCH, found")]
    + """
import sys
def mobile():
    return keras.applications.MobileNetV2((32, 32, 3), 0.35, weights=None, classes=10)
def make(name):
    keras.utils.set_random_seed(1)
    model = globals()[name]()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model
def data(model, size):
    return np.ones((size, *model.input_shape[1:]), model.inputs[0].dtype), np.arange(size) % 10
"""
)
CAPACITY, MIB = 256 << 20, 1 << 20
ASKED = """
model = make(NAME)
before = [keras.ops.convert_to_numpy(one) for one in model.variables]
run = tb_memplugin.probe(model, data(model, 40), (4,))
there = tb_memplugin.what_if(run, batch_size=24).prediction
answer = tb_memplugin.largest_batch_size(model, data(model, 40), CAPACITY, (8,))
changed = [one.path for one, value in zip(model.variables, before, strict=True)
           if not np.array_equal(keras.ops.convert_to_numpy(one), value)]
assert not changed and not model.optimizer.built and not planned(), changed
print(json.dumps({
    "peak": there.peak_bytes, "method": there.method, "size": answer.batch_size,
    "verified": answer.verified, "needed": answer.predicted.prediction.peak_bytes,
    "said": str(answer)}))
"""
FITTED = """
found = []
for size in SIZES:
    model, before = make(NAME), planned()
    x, y = data(model, size)
    model.fit(x, y, batch_size=size, verbose=0)
    found.append(max(planned() - before))
print(json.dumps(found))
"""


def told(folder: pathlib.Path, code: str, **given: object) -> object:
    for name, value in given.items():
        code = code.replace(name, repr(value))
    (folder / "child.py").write_text(BLOCKED + MODELS + code, encoding="utf-8")
    lines = python(folder, "child.py").splitlines()
    return json.loads(next(one for one in lines if one.startswith(("{", "["))))


@pytest.mark.parametrize(
    "name",
    [
        "cnn",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("mobile", "recurrent", "transformer")
        ),
    ],
)
def test_xla_answers_as_it_plans_real_trainings(name: str, tmp_path) -> None:
    answer = told(tmp_path, ASKED, CAPACITY=CAPACITY, NAME=name)
    # GIVEN an answer for another batch size than was asked about, and for the largest one
    assert answer["method"] == "compiled" and answer["verified"] is None
    assert "Not verified: XLA planned the step" in answer["said"]
    # THEN trainings with these are planned as large, and one with 1.15 times as many does not fit
    largest = answer["size"]
    sizes = (24, largest, round(1.15 * largest))
    plain, fitting, larger = told(tmp_path, FITTED, NAME=name, SIZES=sizes)
    assert answer["peak"] == pytest.approx(plain, rel=0.005)
    assert answer["needed"] == pytest.approx(fitting, rel=0.005)
    assert fitting <= CAPACITY < larger + 128 * MIB


USED = """
import os
model = make("cnn")
if os.environ["PROBED"] == "1":
    tb_memplugin.probe(model, data(model, 32))
    plan = tb_memplugin.plan(model, data(model, 40), budget=20 << 20)
    print(plan)
    try:
        tb_memplugin.largest_batch_size(model, data(model, 40))
    except tb_memplugin.RecordingError as error:
        print(error)
    for wrong in ((), iter([1]), ([1], [2], [3], [4])):
        try:
            tb_memplugin.probe(model, wrong)
        except tb_memplugin.RecordingError as error:
            print("refused", error)
history = model.fit(*data(model, 40), batch_size=20, epochs=2, verbose=0).history
print(json.dumps(history))
"""


def test_a_model_that_was_asked_about_trains_as_any_other(tmp_path) -> None:
    (tmp_path / "child.py").write_text(BLOCKED + MODELS + USED, encoding="utf-8")
    plain, asked = (python(tmp_path, "child.py", PROBED=str(one)).splitlines() for one in (0, 1))
    history = [one for one in plain if one.startswith("{")]
    assert history and history == [one for one in asked if one.startswith("{")]
    text = "\n".join(asked)
    # no change is offered that nobody can make or ask about there
    assert "CPU:0: budget 20.0 MiB" in text and "remat(" not in text and "recompute" not in text
    assert "gradient accumulation over" in text and "Recomputed layers are planned for" in text
    assert "capacity of CPU:0 is unknown. Pass capacity" in text
    assert text.count("refused data") == 3
