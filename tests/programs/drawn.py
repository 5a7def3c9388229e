import keras
from random_model import RandomModel, drawn_precision

import tb_memplugin

SEED = 0
BATCH = 16

keras.mixed_precision.set_global_policy(drawn_precision(SEED))
drawn = RandomModel(SEED)
model = drawn.model
model.compile(drawn.optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = model.fit(
    **drawn.fit_arguments(192, BATCH), callbacks=[tb_memplugin.MemoryCallback("runs/exp1")]
)
