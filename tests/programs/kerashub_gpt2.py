import keras
import keras_hub
import numpy as np
import tensorflow as tf

import tb_memplugin

BATCH = 8
LENGTH = 64

backbone = keras_hub.models.GPT2Backbone(
    vocabulary_size=2000,
    num_layers=2,
    num_heads=4,
    hidden_dim=128,
    intermediate_dim=512,
    max_sequence_length=LENGTH,
)
model = keras_hub.models.GPT2CausalLM(backbone=backbone, preprocessor=None)
model.compile(
    optimizer=keras.optimizers.Adam(1e-4),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)

tokens = np.random.randint(0, 2000, (80, LENGTH + 1)).astype("int32")
mask = np.ones((80, LENGTH), "int32")
ds = tf.data.Dataset.from_tensor_slices(
    ({"token_ids": tokens[:, :-1], "padding_mask": mask}, tokens[:, 1:])
)
ds = ds.batch(BATCH).cache().prefetch(tf.data.AUTOTUNE)

history = model.fit(ds, epochs=2, callbacks=[tb_memplugin.MemoryCallback("runs/exp1")])

prompt = {
    "token_ids": tokens[:2, :LENGTH],
    "padding_mask": np.array([[1] * 8 + [0] * (LENGTH - 8)] * 2),
}
print(model.generate(prompt, stop_token_ids=None)["token_ids"][0, :16])
