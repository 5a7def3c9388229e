import numpy as np
import tensorflow as tf

import tb_memplugin

BATCH = 128


class Linear(tf.Module):
    def __init__(self, in_features, out_features, name=None):
        super().__init__(name=name)
        stddev = in_features**-0.5
        self.w = tf.Variable(tf.random.normal([in_features, out_features], stddev=stddev), name="w")
        self.b = tf.Variable(tf.zeros([out_features]), name="b")

    def __call__(self, x):
        return tf.matmul(x, self.w) + self.b


class MLP(tf.Module):
    def __init__(self, name=None):
        super().__init__(name=name)
        self.layers = [Linear(64, 512), Linear(512, 512), Linear(512, 1)]

    @tf.Module.with_name_scope
    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = tf.nn.relu(layer(x))
        return self.layers[-1](x)


model = MLP(name="mlp")
data = tf.data.Dataset.from_tensor_slices(
    (np.random.rand(1536, 64).astype("float32"), np.random.rand(1536, 1).astype("float32"))
).batch(BATCH)
losses = []


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - y))
    for variable, gradient in zip(
        model.trainable_variables, tape.gradient(loss, model.trainable_variables)
    ):
        variable.assign_sub(0.01 * gradient)
    return loss


with tb_memplugin.MemoryRecorder("runs/exp1", model=model) as recorder:
    for step, (x, y) in enumerate(data):
        with recorder.step(step):
            losses.append(float(train_step(x, y)))
