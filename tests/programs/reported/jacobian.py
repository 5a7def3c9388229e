# gradients for each example with tape.jacobian: batch x parameters
import keras
import tensorflow as tf

B, D, U = 64, 256, 128
model = keras.Sequential(
    [keras.Input((D,)), keras.layers.Dense(U, name="wide"), keras.layers.Dense(1, name="out")]
)
opt = keras.optimizers.SGD(0.01)
opt.build(model.trainable_variables)


@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        losses = tf.reduce_sum((model(x) - y) ** 2, -1)
    per_example = tape.jacobian(losses, model.trainable_variables)
    norm = tf.sqrt(tf.add_n([tf.reduce_sum(tf.reshape(g, (B, -1)) ** 2, -1) for g in per_example]))
    scale = tf.minimum(1.0, 1.0 / norm)
    grads = [tf.tensordot(scale, g, 1) / B for g in per_example]
    opt.apply(grads, model.trainable_variables)


for _ in range(40):
    step(tf.random.normal((B, D)), tf.random.normal((B, 1)))
