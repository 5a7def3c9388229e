# gradients for each example by tf.vectorized_map (DP-SGD): batch x parameters
import keras
import tensorflow as tf

B, D, U = 64, 256, 128
model = keras.Sequential(
    [keras.Input((D,)), keras.layers.Dense(U, name="wide"), keras.layers.Dense(1, name="out")]
)
opt = keras.optimizers.SGD(0.01)
opt.build(model.trainable_variables)


def one(xy):
    x, y = xy
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((model(x[None]) - y) ** 2)
    return tape.gradient(loss, model.trainable_variables)


@tf.function
def step(x, y):
    per = tf.vectorized_map(one, (x, y))
    grads = [
        tf.reduce_mean(tf.clip_by_norm(g, 1.0, axes=list(range(1, len(g.shape)))), 0) for g in per
    ]
    opt.apply(grads, model.trainable_variables)


for _ in range(40):
    step(tf.random.normal((B, D)), tf.random.normal((B, 1)))
