import math
import sys

import keras
import numpy as np
import tensorflow as tf

import tb_memplugin

B = int(sys.argv[1])
L = keras.layers
critic = keras.Sequential(
    [
        keras.Input((32, 32, 3)),
        L.Conv2D(64, 3, 2, "same"),
        L.LeakyReLU(),
        L.Conv2D(128, 3, 2, "same"),
        L.LeakyReLU(),
        L.Flatten(),
        L.Dense(1),
    ],
    name="critic",
)
opt = keras.optimizers.Adam(1e-4)
opt.build(critic.trainable_variables)
first = []


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        with tf.GradientTape() as inner:
            inner.watch(x)
            s = critic(x)
        g = inner.gradient(s, x)
        loss = tf.reduce_mean(s) + 10 * tf.reduce_mean(
            (tf.norm(tf.reshape(g, (B, -1)), axis=1) - 1) ** 2
        )
    first.append(len(tf.compat.v1.get_default_graph().get_operations()))
    opt.apply(tape.gradient(loss, critic.trainable_variables), critic.trainable_variables)
    return loss


data = [tf.constant(np.random.rand(B, 32, 32, 3).astype("f")) for _ in range(10)]
with tb_memplugin.MemoryRecorder(
    sys.argv[2], model=critic, optimizer=opt, trace_steps=[3, 5, 7]
) as r:
    for i in range(10):
        with r.step(i):
            step(data[i])
ops = step.get_concrete_function(tf.TensorSpec((B, 32, 32, 3))).graph.get_operations()
late = {o.name for o in ops[first[0] :]}
out = {}
for o in ops[first[0] :]:
    for t in o.inputs:
        while t.op.type in ("Reshape", "Identity") and t.op.name not in late:
            t = t.op.inputs[0]
        if (
            t.op.name not in late
            and o.type not in ("Shape", "BroadcastGradientArgs")
            and t.op.type
            not in ("Const", "ReadVariableOp", "Placeholder", "Shape", "BroadcastGradientArgs")
            and t.dtype != tf.resource
        ):
            out[t.name] = math.prod(t.shape) * t.dtype.size
print("truth: read by the outer gradient's ops:", sum(out.values()) >> 10, "KiB")
snapshot = tb_memplugin.load(sys.argv[2].rsplit("/", 1)[0])["run"].snapshots[-1]
print(
    "recorded as saved for backward:",
    sum(row.bytes for row in snapshot.saved_for_backward) >> 10,
    "KiB",
)
