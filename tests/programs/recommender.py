import keras
import numpy as np
import tensorflow as tf

import tb_memplugin

BATCH = 256
USERS, ITEMS, DIM = 20000, 5000, 32


class TwoTower(keras.Model):
    def __init__(self):
        super().__init__()
        self.users = keras.layers.Embedding(USERS, DIM)
        self.items = keras.layers.Embedding(ITEMS, DIM)
        self.project = keras.layers.Dense(DIM, activation="relu")

    def call(self, inputs):
        user = self.project(self.users(inputs["user_id"]))
        item = self.project(self.items(inputs["item_id"]))
        return tf.reduce_sum(user * item, axis=-1)


ratings = {
    "user_id": np.random.randint(0, USERS, 3072),
    "item_id": np.random.randint(0, ITEMS, 3072),
}
stars = np.random.rand(3072).astype("float32")
ds = tf.data.Dataset.from_tensor_slices((ratings, stars)).shuffle(10_000).batch(BATCH).cache()

model = TwoTower()
model.compile(optimizer=keras.optimizers.Adagrad(0.1), loss="mse")
history = model.fit(ds, epochs=3, callbacks=[tb_memplugin.MemoryCallback("runs/exp1")])
