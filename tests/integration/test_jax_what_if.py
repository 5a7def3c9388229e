"""What-if of recorded trainings on JAX against XLA's plan of real trainings with three times the
batch, and the fixes of a failed step."""

import importlib.util
import json

import pytest
from test_jax import BLOCKED, MODEL, OUT_OF_MEMORY, python

import tb_memplugin

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="needs jax, as of the test requirements"
)

TRAINED = """
import json
import jax
import keras, numpy as np
import tb_memplugin
layers = keras.layers
def cnn():
    return keras.Sequential([
        keras.Input((32, 32, 3)), layers.Conv2D(32, 3, activation="relu"),
        layers.BatchNormalization(), layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPooling2D(), layers.Conv2D(128, 3), layers.Dropout(0.3),
        layers.GlobalAveragePooling2D(), layers.Dense(10)])
def unet():
    given = x = keras.Input((64, 64, 3))
    kept = []
    for filters in (16, 32, 64):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        kept.append(x)
        x = layers.MaxPooling2D()(x)
    for filters, other in zip((64, 32, 16), kept[::-1]):
        x = layers.Conv2DTranspose(filters, 2, strides=2)(x)
        x = layers.Concatenate()([x, other])
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    return keras.Model(given, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))
def recurrent():
    return keras.Sequential([
        keras.Input((40, 64)), layers.LSTM(128, return_sequences=True), layers.GRU(96),
        layers.Dense(10)])
def transformer():
    given = keras.Input((64,), dtype="int32")
    x = layers.Embedding(2000, 128)(given)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 32)(x, x))
        inner = layers.Dense(512, activation="gelu")(x)
        x = layers.LayerNormalization()(x + layers.Dropout(0.1)(layers.Dense(128)(inner)))
    return keras.Model(given, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))

def planned():
    sizes = set()
    for one in jax.devices()[0].client.live_executables():
        if one.hlo_modules()[0].name == "jit_train_step":
            stats = one.get_compiled_memory_stats()
            sizes.add(stats.argument_size_in_bytes + stats.temp_size_in_bytes
                      + stats.output_size_in_bytes - stats.alias_size_in_bytes)
    return sizes

BATCH, found = 16, {}
for make in (cnn, unet, recurrent, transformer):
    model = make()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    def fit(size, *callbacks):
        x = np.ones((size, *model.input_shape[1:]), model.inputs[0].dtype)
        model.fit(x, np.arange(size) % 10, batch_size=size, verbose=0, callbacks=list(callbacks))
    callback = tb_memplugin.MemoryCallback(f"runs/{make.__name__}")
    fit(BATCH, callback)
    callback.close()
    before = planned()
    fit(3 * BATCH)
    (found[make.__name__],) = planned() - before
print(json.dumps(found))
"""


def test_other_batch_sizes_need_what_xla_plans_for_them(tmp_path) -> None:
    (tmp_path / "train.py").write_text(BLOCKED + TRAINED, encoding="utf-8")
    said = python(tmp_path, "train.py").splitlines()
    planned = json.loads(next(one for one in said if one.startswith("{")))
    assert len(planned) == 4
    runs = tb_memplugin.load(str(tmp_path / "runs"))
    for name, size in planned.items():
        found = tb_memplugin.what_if(runs[name], batch_size=48, capacity="64GiB")
        # the models before it, of which XLA's plan knows nothing
        held = sum(
            row.bytes for row in runs[name].snapshots[-1].ledger if row.category == "held_tensors"
        )
        assert found.prediction.peak_bytes - held == pytest.approx(size, rel=0.03), name
        assert found.prediction.fits and found.largest_batch_size > 48
        limited = tb_memplugin.what_if(runs[name], batch_size=48, capacity=size // 2)
        assert limited.prediction.fits is False
        assert 0 < limited.largest_batch_size < 48


WIDE = """
BATCH = 32
model = transformer()
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
callback = tb_memplugin.MemoryCallback("runs/wide")
for size in (BATCH, 3 * BATCH):
    x, before = np.ones((size, 64), "int32"), planned()
    model.fit(x, np.arange(size) % 10, batch_size=size, verbose=0,
              callbacks=[callback] if size == BATCH else [])
callback.close()
(found,) = planned() - before
print(found)
"""


def test_the_range_covers_other_fusions_of_a_transformer(tmp_path) -> None:
    code = TRAINED[: TRAINED.index("BATCH, found")] + WIDE
    (tmp_path / "train.py").write_text(BLOCKED + code, encoding="utf-8")
    real = int(python(tmp_path, "train.py").splitlines()[-1])
    run = tb_memplugin.load(str(tmp_path / "runs"))["wide"]
    found = tb_memplugin.what_if(run, batch_size=96, capacity="64GiB").prediction
    assert found.low_bytes < real < found.high_bytes < 1.3 * real
    assert found.peak_bytes < 0.96 * real  # else the range proves nothing


FAILED = """
import jax
import tb_memplugin
from tb_memplugin.recorder.loop.jax_session import JaxSession
# figures that a CPU does not give: what is in use, the highest, and the limit
FIGURES = {"bytes_in_use": 1 << 20, "peak_bytes_in_use": 1 << 20, "bytes_limit": LIMIT}
JaxSession._statistics = lambda self: FIGURES

class Failing(keras.Sequential):
    def make_train_function(self, force=False):
        super().make_train_function(force)
        step = self.train_function
        def fails(state, iterator):
            step(state, iterator)  # compiles it
            raise out_of_memory()
        self.train_function = fails

failing = Failing(make().layers, name="failing")
failing.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
callback = tb_memplugin.MemoryCallback("runs/failing")
try:
    failing.fit(x, y, batch_size=80, verbose=0, callbacks=[callback])
except Exception as error:
    print(str(error)[:60])
callback.close()
"""


def test_the_post_mortem_names_a_batch_size_that_fits(tmp_path) -> None:
    limit = 4 << 20
    code = BLOCKED + MODEL + OUT_OF_MEMORY + FAILED.replace("LIMIT", str(limit))
    (tmp_path / "train.py").write_text(code, encoding="utf-8")
    assert "RESOURCE_EXHAUSTED" in python(tmp_path, "train.py")
    (oom,) = tb_memplugin.load(str(tmp_path / "runs"))["failing"].ooms
    assert (oom.batch_size, oom.capacity_bytes) == (80, limit)
    (fix,) = (one for one in oom.fixes if one.kind == "batch")
    assert fix.enough and 0 < fix.batch_size < 80 and fix.high_bytes <= limit


def test_a_callback_asks_for_devices_when_training_begins(tmp_path) -> None:
    code = (
        "import jax, keras, tb_memplugin\n"
        "def refuse(*_): raise AssertionError('too early')\n"
        "devices, jax.local_devices = jax.local_devices, refuse\n"
        "callback = tb_memplugin.MemoryCallback('runs/r')\n"
        "callback.close()\n"
    )
    (tmp_path / "make.py").write_text(code, encoding="utf-8")
    python(tmp_path, "make.py")
