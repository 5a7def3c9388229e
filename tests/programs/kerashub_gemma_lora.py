import keras
import keras_hub
import numpy as np

import tb_memplugin

BATCH = 8
LENGTH = 48

backbone = keras_hub.models.GemmaBackbone(
    vocabulary_size=2000,
    num_layers=2,
    num_query_heads=4,
    num_key_value_heads=1,
    hidden_dim=128,
    intermediate_dim=512,
    head_dim=32,
)
model = keras_hub.models.GemmaCausalLM(backbone=backbone, preprocessor=None)
model.backbone.enable_lora(rank=4)
model.summary()

optimizer = keras.optimizers.AdamW(learning_rate=5e-5, weight_decay=0.01)
optimizer.exclude_from_weight_decay(var_names=["bias", "scale"])
model.compile(
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    optimizer=optimizer,
    weighted_metrics=[keras.metrics.SparseCategoricalAccuracy()],
)

count = 80
tokens = np.random.randint(0, 2000, (count, LENGTH + 1)).astype("int32")
x = {"token_ids": tokens[:, :-1], "padding_mask": np.ones((count, LENGTH), "int32")}
history = model.fit(
    x,
    tokens[:, 1:],
    sample_weight=np.ones((count, LENGTH), "float32"),
    batch_size=BATCH,
    epochs=1,
    callbacks=[tb_memplugin.MemoryCallback("runs/exp1")],
)
