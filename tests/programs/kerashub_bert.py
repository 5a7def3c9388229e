import keras
import keras_hub
import numpy as np

import tb_memplugin

BATCH = 16
LENGTH = 64

backbone = keras_hub.models.BertBackbone(
    vocabulary_size=2000,
    num_layers=2,
    num_heads=4,
    hidden_dim=128,
    intermediate_dim=512,
    max_sequence_length=LENGTH,
)
model = keras_hub.models.BertTextClassifier(backbone=backbone, num_classes=2, preprocessor=None)
model.compile(
    optimizer=keras.optimizers.Adam(5e-5),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)

count = 160
features = {
    "token_ids": np.random.randint(0, 2000, (count, LENGTH)),
    "segment_ids": np.zeros((count, LENGTH), "int32"),
    "padding_mask": np.ones((count, LENGTH), "int32"),
}
labels = np.random.randint(0, 2, count)
history = model.fit(
    x=features,
    y=labels,
    batch_size=BATCH,
    epochs=2,
    callbacks=[tb_memplugin.MemoryCallback("runs/exp1")],
)
