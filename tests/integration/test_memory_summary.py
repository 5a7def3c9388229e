"""`memory_summary` of a model whose sizes are known: Keras's counts, and rows that sum to what is
allocated."""

import pathlib
import re

from child import run_child

CODE = """
import keras, numpy as np, tensorflow as tf, tb_memplugin

inputs = keras.Input((1024,))
frozen = keras.layers.Dense(512, use_bias=False, trainable=False, name="frozen")
trained = keras.layers.Dense(2048, use_bias=False, name="trained")
model = keras.Model(inputs, trained(frozen(inputs)), name="net")
model.compile("adam", "mse")
model.fit(np.zeros((8, 1024), "float32"), np.zeros((8, 2048), "float32"), batch_size=8, verbose=0)
kept = [tf.ones((256, 1024)) for _ in range(3)]
summary = tb_memplugin.memory_summary(model)
empty = keras.Sequential([keras.layers.Dense(3)])  # without weights
found = tb_memplugin.memory_summary()
in_use = tf.config.experimental.get_memory_info("CPU:0")["current"]
answer(
    {
        "text": str(summary),
        "found": str(found),
        "html": summary._repr_html_(),
        "repr": repr(summary),
        "step": summary.step,
        "in_use": in_use,
        "weights": 4 * model.count_params(),
        "sums": [sum(one.bytes for one in device.categories) for device in summary.devices],
        "allocated": [device.allocated_bytes for device in summary.devices],
    }
)
"""
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
ROW = re.compile(r"(\w[\w ]*?) {2,}([\d.]+) (B|KiB|MiB)(?: +(\d+))?")


def test_rows_are_kerass_counts_and_sum_to_what_is_allocated(tmp_path: pathlib.Path) -> None:
    told = run_child(CODE, str(tmp_path))
    sizes, tensors = {}, {}
    for line in told["text"].splitlines():
        if row := ROW.fullmatch(line.strip()):
            sizes[row[1]] = float(row[2]) * UNITS[row[3]]
            tensors[row[1]] = row[4]
    # THEN the weights, Adam's two slots and the kept tensors have their sizes
    assert sizes["frozen weights"] + sizes["trainable weights"] == told["weights"] == 6 << 20
    assert (sizes["frozen weights"], tensors["frozen weights"]) == (2 << 20, "1")
    assert sizes["optimizer state"] == 8 << 20
    assert (sizes["held tensors"], tensors["held tensors"]) == (3 << 20, "3")
    # AND everything together is what the allocator has handed out, as far as figures of two digits
    # say it
    assert abs(sizes["allocated"] - told["in_use"]) <= 0.05 * UNITS["MiB"]
    assert abs(sum(sizes.values()) - 2 * sizes["allocated"]) <= 0.1 * UNITS["MiB"]
    # AND the layer with weights and slots is listed first
    listed = re.findall(r"^  (net/\w+) +([\d.]+ \w+) +([\d.]+ \w+)$", told["text"], re.MULTILINE)
    assert listed == [("net/trained", "4.0 MiB", "8.0 MiB"), ("net/frozen", "2.0 MiB", "0 B")]
    # AND the figures behind the text are exact
    assert told["sums"] == told["allocated"] == [told["in_use"]]
    # AND the step is that of the training: one batch, number 0
    assert told["step"] == 0 and told["text"].startswith(
        "Memory of model net, after training step 0\n"
    )
    # AND the model is found without being passed
    assert told["found"] == told["text"]
    assert re.fullmatch(r"<MemorySummary CPU:0: [\d.]+ MiB allocated>", told["repr"])
    assert "<td" in told["html"] and "frozen weights" in told["html"]
