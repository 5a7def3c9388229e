# iterators that are kept: each epoch opens iter(ds) again and the old ones stay in a list: each
# keeps a shuffle buffer
import keras
import tensorflow as tf

ds = (
    tf.data.Dataset.from_tensor_slices(tf.range(4000))
    .map(lambda i: (tf.random.uniform((4096,)), tf.zeros((1,))))
    .shuffle(128)
    .batch(8)
    .repeat()
)
m = keras.Sequential([keras.Input((4096,)), keras.layers.Dense(4), keras.layers.Dense(1)])
opt = keras.optimizers.SGD(0.01)
opt.build(m.trainable_variables)


@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((m(x) - y) ** 2)
    opt.apply(tape.gradient(loss, m.trainable_variables), m.trainable_variables)


kept = []
for _epoch in range(20):
    it = iter(ds)
    kept.append(it)
    for _ in range(5):
        step(*next(it))
