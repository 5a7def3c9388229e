import keras
import numpy as np
from keras import layers

import tb_memplugin

BATCH = 32


class TransformerBlock(layers.Layer):
    def __init__(self, dim, heads, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.MultiHeadAttention(heads, dim // heads)
        self.mlp = keras.Sequential([layers.Dense(4 * dim, activation="gelu"), layers.Dense(dim)])
        self.norm1 = layers.LayerNormalization()
        self.norm2 = layers.LayerNormalization()
        self.dropout = layers.Dropout(0.1)

    def call(self, x, training=False):
        y = self.norm1(x)
        x = x + self.dropout(self.attention(y, y), training=training)
        return x + self.mlp(self.norm2(x))


class Classifier(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = layers.Embedding(2000, 64)
        self.blocks = [TransformerBlock(64, 4) for _ in range(2)]
        self.pool = layers.GlobalAveragePooling1D()
        self.head = layers.Dense(2)

    def call(self, tokens, training=False):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, training=training)
        return self.head(self.pool(x))


tokens = np.random.randint(0, 2000, (384, 64))
labels = np.random.randint(0, 2, 384)

model = Classifier()
model.compile(
    optimizer=keras.optimizers.AdamW(1e-3),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
history = model.fit(
    tokens, labels, batch_size=BATCH, epochs=2, callbacks=[tb_memplugin.MemoryCallback("runs/exp1")]
)
