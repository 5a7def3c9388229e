"""Trains programs that are drawn at random, with objects in them that do what nobody expects when
they are asked.

Run as ``python odd_programs.py DIRECTORY SEED …``, in a process of its own; the same seed gives the
same program. The runs of a program are recorded below ``DIRECTORY/SEED``; with ``-`` as directory
nothing is recorded. After its own lines, each program prints ``ANSWER {…}``. The process ends with
`exit_code` of its last seed.
"""

import collections
import contextlib
import functools
import gc
import hashlib
import itertools
import json
import pathlib
import queue
import random
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

IN, WIDTH, OUT, BATCH, STEPS = 256, 512, 8, 32, 8
TRACED = [2, 4, 6]
ROWS = 16
"""Of 256 numbers each, in the variable or tensor that an odd object holds."""
HELD = ROWS * 1024 + 256
"""Bytes on the device that an odd object holds."""


class OddError(BaseException):
    """What no ``except Exception`` catches."""


ERRORS = (
    ValueError,
    AttributeError,
    KeyError,
    RuntimeError,
    StopIteration,
    RecursionError,
    MemoryError,
    OddError,
)


def exit_code(seed: int) -> int:
    return 3 * (seed % 4 == 0)


class Answers:
    """What an odd object does when it is asked for something."""

    def __init__(self, draw: random.Random, name: str) -> None:
        self.draw, self.name = draw, name

    def drawn(self) -> Callable[..., Any]:
        makers = [self.raises, self.returns]
        if not self.name.startswith("_"):  # what only the library reads is no code of the program
            makers += [self.prints, self.builds]
        return self.draw.choice(makers)()

    def raises(self) -> Callable[..., Any]:
        error = self.draw.choice(ERRORS)

        def ask(this: Any, *arguments: Any) -> Any:
            raise error(f"asked for {self.name}")

        return ask

    def returns(self) -> Callable[..., Any]:
        endless = lambda this: itertools.repeat(this)  # noqa: E731
        mixed = lambda this: [1, "text", None, this]  # noqa: E731
        values = [
            lambda this: None,
            lambda this: 7,
            lambda this: "text",
            lambda this: this,
            endless,
            mixed,
        ]
        value = self.draw.choice([*values, lambda this: range(1 << 50), lambda this: lambda: 7])
        return lambda this, *arguments: value(this)

    def prints(self) -> Callable[..., Any]:
        def ask(this: Any, *arguments: Any) -> Any:
            print("asked for", self.name)
            return ()

        return ask

    def builds(self) -> Callable[..., Any]:
        """Makes its variable as soon as somebody asks."""

        def ask(this: Any, *arguments: Any) -> Any:
            print("built by a question for", self.name)
            this.__dict__["late"] = tf.Variable(tf.zeros([ROWS, 256]))
            return (this.__dict__["late"],)

        return ask


SPECIAL = (
    "__len__",
    "__eq__",
    "__bool__",
    "__iter__",
    "__getattr__",
    "__repr__",
    "__hash__",
    "__contains__",
)
LIES = (
    tf.Variable,
    tf.Tensor,
    tf.Module,
    tf.data.Dataset,
    keras.Model,
    keras.layers.Layer,
    keras.optimizers.Optimizer,
)


def special(draw: random.Random, name: str) -> Any:
    """A special method that answers with an error or something else than Python expects."""
    if name == "__hash__" and draw.random() < 0.5:
        return None
    if name == "__eq__" and draw.random() < 0.5:
        return lambda this, other: np.ones(3)
    return draw.choice(
        [Answers(draw, name).raises, Answers(draw, name).returns, Answers(draw, name).prints]
    )()


def odd_class(
    draw: random.Random,
    base: type,
    attributes: tuple[str, ...],
    specials: tuple[str, ...] = SPECIAL,
) -> Any:
    """A subclass that overrides one to three attributes and up to two special methods."""
    body: dict[str, Any] = {}
    for name in draw.sample(attributes, min(len(attributes), draw.randint(1, 3))):
        ask = Answers(draw, name).drawn()
        body[name] = property(ask) if draw.random() < 0.75 else ask
    for name in draw.sample(specials, min(len(specials), draw.choice([0, 0, 1, 2]))):
        body[name] = special(draw, name)
        if name == "__eq__":
            body.setdefault("__hash__", base.__hash__)
    return types.new_class(f"Odd{base.__name__}", (base,), {}, lambda space: space.update(body))


def turned(
    draw: random.Random, thing: Any, *attributes: str, specials: tuple[str, ...] = SPECIAL
) -> Any:
    """An object that was made in the ordinary way and is odd from now on."""
    thing.__class__ = odd_class(draw, type(thing), attributes, specials)
    return thing


MODULE = (
    "variables",
    "trainable_variables",
    "submodules",
    "name",
    "_flatten",
    "weights",
    "layers",
    "__dict__",
)
TENSOR = (
    "shape",
    "dtype",
    "device",
    "numpy",
    "handle",
    "name",
    "_id",
    "__dlpack__",
    "__array__",
    "nbytes",
)


def module(draw: random.Random) -> Any:
    class Helper(tf.Module):
        def __init__(self) -> None:
            if draw.random() < 0.7:
                super().__init__()
            self.kernel = tf.Variable(tf.zeros([ROWS, 256]))

    helper = Helper()
    return (
        helper
        if draw.random() < 0.15
        else turned(draw, helper, *MODULE[: -1 if draw.random() < 0.8 else None])
    )


def plain(draw: random.Random) -> Any:
    """Any object, which may say that it is of a class of TensorFlow or Keras."""
    base: dict[str, Any] = {}
    if draw.random() < 0.4:
        lie, raises = draw.choice(LIES), draw.random() < 0.2
        base["__class__"] = property(
            Answers(draw, "__class__").raises() if raises else lambda this: lie
        )
    thing = odd_class(
        draw, type("Thing", (), base), (*MODULE[:-1], *TENSOR, "optimizer", "variable")
    )()
    object.__getattribute__(thing, "__dict__")["kernel"] = tf.Variable(tf.zeros([ROWS, 256]))
    return thing


def variable(draw: random.Random) -> Any:
    return turned(
        draw,
        tf.Variable(tf.zeros([ROWS, 256])),
        *TENSOR[:7],
        "trainable",
        "value",
        "_handle",
        "_shape",
    )


def keras_variable(draw: random.Random) -> Any:
    return turned(
        draw,
        keras.Variable(np.zeros((ROWS, 256), "float32")),
        "path",
        "name",
        "value",
        "shape",
        "_value",
    )


def tensor(draw: random.Random) -> Any:
    """Tensors of kinds that have no plain bytes, and one that the others are about."""
    values = tf.zeros([ROWS, 256])
    rows = tf.constant([0, ROWS], tf.int64)
    kinds = [
        lambda: tf.RaggedTensor.from_row_splits(values, rows),
        lambda: tf.IndexedSlices(values, rows),
        lambda: tf.TensorArray(tf.float32, 1).write(0, values),
        lambda: (
            tf.constant(["text"]),
            tf.raw_ops.TensorListFromTensor(tensor=values, element_shape=[256]),
        ),
        lambda: tf.function(lambda x: x + values).get_concrete_function(values),
    ]
    return draw.choice(kinds)()


def dataset(draw: random.Random) -> Any:
    data = tf.data.Dataset.from_tensor_slices(np.zeros((ROWS, 256), "float32")).repeat()
    if draw.random() < 0.3:
        return iter(data.prefetch(2))
    return turned(
        draw, data, "_tensors", "element_spec", "_variant_tensor", "name", "_input_dataset"
    )


def layer(draw: random.Random) -> Any:
    one = keras.layers.Dense(ROWS)
    one.build((None, 256))
    asked = (
        "weights",
        "variables",
        "trainable_weights",
        "trainable_variables",
        "path",
        "name",
        "count_params",
    )
    return turned(
        draw, one, *asked, "submodules", "output", "losses", "dtype", "_layers", "get_config"
    )


def optimizer(draw: random.Random) -> Any:
    one = keras.optimizers.SGD(momentum=0.9)
    one.build([keras.Variable(np.zeros((ROWS // 2, 256), "float32"))])
    return turned(
        draw,
        one,
        "variables",
        "iterations",
        "name",
        "momentums",
        "_variables",
        "_trainable_variables",
    )


def model(draw: random.Random) -> Any:
    one = keras.Sequential([keras.Input((256,)), keras.layers.Dense(ROWS)])
    return turned(
        draw,
        one,
        "layers",
        "weights",
        "variables",
        "name",
        "path",
        "optimizer",
        "metrics",
        "_layers",
    )


ODD = (
    module,
    module,
    plain,
    plain,
    variable,
    keras_variable,
    tensor,
    dataset,
    layer,
    optimizer,
    model,
)


def odd_dense(draw: random.Random) -> Any:
    """A layer that is trained; what Keras asks itself is left as it is."""
    asked = ("count_params", "submodules", "get_config", "_flatten")
    kind = odd_class(draw, keras.layers.Dense, asked, ("__repr__", "__iter__", "__contains__"))
    return kind(ROWS, name="odd")


class Mortal:
    """Notes on which thread it is destroyed, and then lets other threads run."""

    def __init__(self, program: "Program", label: str) -> None:
        self.noted, self.label = program.destroyed, label
        self.way = random.Random(f"{program.seed} {label}").choice(
            ["plain", "sleep", "raise", "revive", "iterator"]
        )
        if self.way == "iterator":
            self.load: Any = iter(
                tf.data.Dataset.from_tensors(np.zeros(64, "float32")).repeat().prefetch(1)
            )
            next(self.load)

    def __del__(self) -> None:
        self.noted.append((self.label, threading.current_thread().name))
        if self.way == "sleep":
            time.sleep(0.002)
        elif self.way == "raise":
            raise ValueError(self.label)
        elif self.way == "revive":
            revived.append(self)


revived: list[Any] = []


class Node:
    """Part of a reference cycle."""


class Program:
    """One drawn program.

    Attributes:
        destroyed: Label and thread of each destroyed object.
        repeats: Whether the order of destruction does not depend on time.
        held: Bytes on the device that its odd objects hold.
    """

    def __init__(self, seed: int, directory: pathlib.Path | None) -> None:
        self.seed, self.directory, self.draw = seed, directory, random.Random(seed)
        self.destroyed: list[tuple[str, str]] = []
        self.losses: list[str] = []
        self.counts: collections.Counter[tuple[str, str]] = collections.Counter()
        self.kept: list[Any] = []
        self.things: list[Any] = []
        self.runs = itertools.count()
        self.held = 0
        self.collects = self.draw.random() < 0.5
        self.garbage = self.draw.sample(
            [
                self.dropped,
                self.cycle,
                self.rolling,
                self.small_model,
                self.finalizer,
                self.generator,
                self.function,
            ],
            self.draw.randint(1, 3),
        )
        self.maker = self.draw.choice([None, "in turn", "in turn", "free"])
        if self.maker == "free":
            self.collects = False
        self.repeats = self.collects
        self.kind = self.draw.choice(
            [
                self.fit,
                self.fit,
                self.function_loop,
                self.eager_loop,
                self.module_loop,
                self.predict_fit,
                self.rebuilt,
            ]
        )
        self.mode = self.draw.choice(["graph", "graph", "compiled", "eager"])
        self.oddities = [self.draw.choice(ODD) for _ in range(self.draw.randint(1, 3))]
        self.odd_layer = self.draw.random() < 0.3
        self.tracing = {"overhead": 1.0} if self.draw.random() < 0.15 else {"trace_steps": TRACED}

    def describe(self) -> str:
        odd = [one.__name__ for one in self.oddities] + ["odd_dense"] * self.odd_layer
        garbage = [one.__name__ for one in self.garbage]
        how = f"collects={self.collects} maker={self.maker} {self.tracing}"
        return f"{self.seed}: {self.kind.__name__} {self.mode} odd={odd} garbage={garbage} {how}"

    def run(self) -> dict[str, Any]:
        (gc.disable if self.collects else gc.enable)()
        keras.utils.set_random_seed(self.seed)
        with self.making():
            self.kind()
        self.things.clear()
        self.kept.clear()
        revived.clear()
        for name in [name for name in globals() if name.startswith("odd_thing")]:
            del globals()[name]
        gc.enable()
        gc.collect()
        print(self.seed, "ends with", " ".join(self.losses))
        return {
            "seed": self.seed,
            "program": self.describe(),
            "losses": self.losses,
            "destroyed": self.destroyed,
            "repeats": self.repeats,
            "held": self.held,
        }

    # Odd objects, and where the recorder may meet them.

    def make_odd(self, *owners: Any) -> None:
        for make in self.oddities:
            thing = make(self.draw)
            self.held += HELD
            places = [self.to_things, self.to_globals, self.to_closure, self.to_nest]
            if owners and make in (module, tensor, dataset, variable) and not _lies(thing):
                places += [functools.partial(self.to_owner, self.draw.choice(owners))] * 2
            self.draw.choice(places)(thing)
            del thing

    def to_things(self, thing: Any) -> None:
        self.things.append(thing)

    def to_globals(self, thing: Any) -> None:
        globals()[f"odd_thing_{self.count('global')}"] = thing

    def to_closure(self, thing: Any) -> None:
        self.things.append(lambda: thing)

    def to_nest(self, thing: Any) -> None:
        holder = Node()
        holder.inner = {"things": [(1, {"thing": thing})], "self": holder}  # type: ignore[attr-defined]
        self.things.append(holder)

    def to_owner(self, owner: Any, thing: Any) -> None:
        try:
            owner.strange = thing
        except BaseException:  # TensorFlow or Keras asks it: without the recorder as well
            self.things.append(thing)

    # Garbage: after each step something is made that goes at once, later, or when it is collected.

    def count(self, kind: str) -> int:
        """How often the running thread asked for this."""
        key = kind, threading.current_thread().name
        self.counts[key] += 1
        return self.counts[key]

    def label(self, kind: str) -> str:
        return f"{kind} {self.count(kind)} of {threading.current_thread().name}"

    def dropped(self) -> None:
        Mortal(self, self.label("dropped"))

    def cycle(self) -> None:
        values = tf.constant([1.0, 2.0])  # older than the node: cleared first
        node = Node()
        # An array is freed while its owner is cleared, as the handle of an iterator is.
        node.me, node.slow = node, np.array([Mortal(self, self.label("cycle"))])  # type: ignore[attr-defined]
        node.values = values  # type: ignore[attr-defined]

    def rolling(self) -> None:
        self.kept.append((Mortal(self, self.label("rolling")), tf.zeros([64])))
        del self.kept[:-2]

    def small_model(self) -> None:
        if self.count("models") % 3 == 0:
            small = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
            small.mortal = [Mortal(self, self.label("model"))]

    def finalizer(self) -> None:
        node, label, noted = Node(), self.label("finalizer"), self.destroyed
        weakref.finalize(node, lambda: noted.append((label, threading.current_thread().name)))
        node.me = node  # type: ignore[attr-defined]

    def generator(self) -> None:
        def batches(label: str) -> Iterator[int]:
            try:
                yield 1
                yield 2
            finally:
                self.destroyed.append((label, threading.current_thread().name))

        node = Node()
        node.generator, node.me = batches(self.label("generator")), node  # type: ignore[attr-defined]
        next(node.generator)  # type: ignore[attr-defined]

    def function(self) -> None:
        if self.count("functions") % 4 == 0:
            mortal = Mortal(self, self.label("function"))

            @tf.function
            def double(x: Any) -> Any:
                return (mortal, x * 2)[1]

            double(tf.constant(1.0))

    def between(self) -> None:
        """What the program does after each step."""
        for make in self.garbage:
            make()
        if self.maker == "in turn":
            self.orders.put(True)
            self.done.get()
        if self.collects and self.count("collections") % 2 == 0:
            gc.collect()

    @contextlib.contextmanager
    def making(self) -> Iterator[None]:
        """A thread that makes garbage: one piece for each step, or as fast as it can."""
        self.orders: queue.Queue[bool] = queue.Queue()
        self.done: queue.Queue[bool] = queue.Queue()

        def in_turn() -> None:
            while self.orders.get():
                self.cycle()
                if self.collects:
                    gc.collect()
                self.done.put(True)

        def free() -> None:
            for number in range(300):
                (self.cycle, self.dropped, self.finalizer)[number % 3]()
                time.sleep(0.001)
                if number % 20 == 0:
                    gc.collect()

        targets = {"in turn": in_turn, "free": free}
        thread = threading.Thread(target=targets[self.maker], name="maker") if self.maker else None
        if thread:
            thread.start()
        try:
            yield
        finally:
            self.orders.put(False)
            if thread:
                thread.join()

    # Trainings, with or without a recorder.

    def callbacks(self) -> list[Any]:
        """The program's own callback and the recorder's, in any order."""
        own = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: (
                self.losses.append(float(logs["loss"]).hex()),
                self.between(),
            ),
            on_predict_batch_end=lambda batch, logs: self.between(),
        )
        first, run = self.draw.random() < 0.5, next(self.runs)
        if self.directory is None:
            return [own]
        import tb_memplugin

        recording = tb_memplugin.MemoryCallback(self.directory / str(run), **self.tracing)
        return [recording, own] if first else [own, recording]

    def loop(self, step: Callable[[int], Any], model: Any, optimizer: Any) -> None:
        if self.draw.random() < 0.4:
            model = optimizer = None  # the recorder finds them
        with contextlib.ExitStack() as stack:
            recorder = None
            if self.directory is not None:
                import tb_memplugin

                recorder = tb_memplugin.MemoryRecorder(
                    self.directory / "0", model, optimizer, **self.tracing
                )
                stack.enter_context(recorder)
            for number in range(STEPS):
                with recorder.step(number) if recorder else contextlib.nullcontext():
                    self.losses.append(float(step(number)).hex())
                    if self.draw.random() < 0.5:
                        self.between()
                self.between()

    def data(self, count: int) -> tuple[Any, Any]:
        numbers = np.random.default_rng(self.seed)
        return numbers.random((count, IN), dtype="float32"), numbers.random(
            (count, OUT), dtype="float32"
        )

    def fed(self, x: Any, y: Any) -> dict[str, Any]:
        """Arguments of ``fit``."""
        feed = self.draw.choice(["arrays", "dataset", "generator", "sequence"])
        program, label = self, self.label("feed")

        class Batches(keras.utils.PyDataset):  # type: ignore[misc]
            def __len__(self) -> int:
                return len(x) // BATCH

            def __getitem__(self, at: int) -> Any:
                return x[at * BATCH :][:BATCH], y[at * BATCH :][:BATCH]

            def __eq__(self, other: object) -> Any:
                return np.ones(2)

            __hash__ = keras.utils.PyDataset.__hash__

        def batches() -> Iterator[Any]:
            for at in itertools.cycle(range(0, len(x), BATCH)):
                yield x[at : at + BATCH], y[at : at + BATCH]

        if feed == "arrays":
            return {"x": x, "y": y, "batch_size": BATCH}
        if feed == "generator":
            return {"x": batches(), "steps_per_epoch": len(x) // BATCH}
        if feed == "sequence":
            return {"x": Batches()}
        data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
        program.things.append((label, iter(data)))
        return {"x": data.prefetch(2)}

    def compiled_model(self) -> Any:
        layers = [
            keras.layers.Dense(WIDTH, "relu"),
            keras.layers.Dense(WIDTH, "tanh"),
            keras.layers.Dense(OUT),
        ]
        if self.odd_layer:
            layers.insert(2, odd_dense(self.draw))
            self.held += 4 * 4 * (WIDTH + 1) * ROWS  # its weights, gradients and slots
        one = keras.Sequential([keras.Input((IN,)), *layers])
        if self.draw.random() < 0.4:
            one = Subclassed(layers)
        optimizer = self.draw.choice(
            [keras.optimizers.Adam, keras.optimizers.RMSprop, keras.optimizers.SGD]
        )(0.01)
        if self.draw.random() < 0.2:
            asked = ("get_config", "from_config", "get_weights", "slots", "weights")
            optimizer = turned(
                self.draw, optimizer, *asked, specials=("__len__", "__repr__", "__iter__")
            )
        one.compile(
            optimizer, "mse", jit_compile=self.mode == "compiled", run_eagerly=self.mode == "eager"
        )
        return one

    def fit(self) -> None:
        one = self.compiled_model()
        self.make_odd(one, one.layers[0])
        one.fit(
            **self.fed(*self.data(STEPS // 2 * BATCH)),
            epochs=2,
            verbose=0,
            callbacks=self.callbacks(),
        )
        self.tell(one)

    def predict_fit(self) -> None:
        """As in reinforcement learning: each move predicts and trains a little."""
        one, (x, y) = self.compiled_model(), self.data(2 * BATCH)
        self.make_odd(one, one.layers[0])
        callbacks = self.callbacks()
        for move in range(STEPS):
            target = one.predict(x[: 1 + move % 2], verbose=0, callbacks=callbacks)
            y[: len(target)] = target / 2
            one.fit(x[:BATCH], y[:BATCH], batch_size=BATCH, verbose=0, callbacks=callbacks)
        self.tell(one)

    def rebuilt(self) -> None:
        """Models are made, trained and dropped."""
        for _ in range(3):
            one = self.compiled_model()
            self.make_odd(one)
            self.to_owner(one, [Mortal(self, self.label("trained"))])
            x, y = self.data(4 * BATCH)
            one.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, callbacks=self.callbacks())
            self.tell(one)
            self.things.clear()

    def function_loop(self) -> None:
        self.loop_of(tf.function(jit_compile=self.mode == "compiled"))

    def eager_loop(self) -> None:
        self.loop_of(lambda step: step)

    def loop_of(self, decorate: Callable[[Any], Any]) -> None:
        one = self.compiled_model()
        optimizer, (x, y) = one.optimizer, self.data(STEPS * BATCH)
        one(x[:1])
        optimizer.build(one.trainable_variables)
        self.make_odd(one, one.layers[0])

        @decorate
        def train(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((one(x, training=True) - y) ** 2)
            optimizer.apply(tape.gradient(loss, one.trainable_variables), one.trainable_variables)
            return loss

        def step(number: int) -> Any:
            rows = slice(number * BATCH, (number + 1) * BATCH)
            return train(tf.constant(x[rows]), tf.constant(y[rows]))

        self.loop(step, one, optimizer)
        self.tell(one)

    def module_loop(self) -> None:
        """A program without Keras, whose tree of modules contains the odd ones."""
        net, (x, y) = Net(), self.data(STEPS * BATCH)
        self.make_odd(net, net.stack[0], Holder(net))
        weights = [one for linear in net.stack for one in (linear.kernel, linear.bias)]
        slots = OwnMomentum(weights)
        if self.draw.random() < 0.5:
            slots = turned(self.draw, slots, "variables", "iterations", "weights", "name")

        @tf.function
        def train(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((net(x) - y) ** 2)
            slots.apply(tape.gradient(loss, weights), weights)
            return loss

        def step(number: int) -> Any:
            rows = slice(number * BATCH, (number + 1) * BATCH)
            return train(tf.constant(x[rows]), tf.constant(y[rows]))

        self.loop(step, net, None)

    def tell(self, one: Any) -> None:
        digest = hashlib.sha256()
        for layer in one.layers:
            for name in ("kernel", "bias"):
                digest.update(np.asarray(getattr(layer, name, 0.0)).tobytes())
        print(self.seed, "weights", digest.hexdigest())


class Holder:
    """Sets an attribute at the end of the list of a module's parts, as one more part."""

    def __init__(self, net: Any) -> None:
        self.__dict__["net"] = net

    def __setattr__(self, name: str, value: Any) -> None:
        self.net.stack_of_others.append(value)


class Linear(tf.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.kernel = tf.Variable(tf.random.normal([inputs, outputs], seed=1) * 0.05)
        self.bias = tf.Variable(tf.zeros([outputs]))

    def __call__(self, x: Any) -> Any:
        return tf.tanh(x @ self.kernel + self.bias)


class Net(tf.Module):
    def __init__(self) -> None:
        super().__init__(name="net")
        self.stack = [Linear(IN, WIDTH), Linear(WIDTH, WIDTH), Linear(WIDTH, OUT)]
        self.stack_of_others: list[Any] = []

    def __call__(self, x: Any) -> Any:
        for linear in self.stack:
            x = linear(x)
        return x


class OwnMomentum:
    """An optimizer that is not of Keras."""

    def __init__(self, weights: list[Any]) -> None:
        self.momentums = [tf.Variable(tf.zeros_like(one)) for one in weights]

    def apply(self, gradients: list[Any], weights: list[Any]) -> None:
        for momentum, gradient, weight in zip(self.momentums, gradients, weights, strict=True):
            momentum.assign(0.9 * momentum + gradient)
            weight.assign_sub(0.01 * momentum)


class Subclassed(keras.Model):  # type: ignore[misc]
    def __init__(self, layers: list[Any]) -> None:
        super().__init__()
        self.own = layers

    def call(self, x: Any) -> Any:
        for one in self.own:
            x = one(x)
        return x


def _lies(thing: Any) -> bool:
    return "__class__" in vars(type(thing)) or "__dict__" in vars(type(thing))


def main() -> None:
    directory, *seeds = sys.argv[1:]
    tf.config.experimental.enable_op_determinism()
    # Printed, as what an object prints; an error of a destructor goes nowhere else.
    sys.unraisablehook = lambda ignored: print(
        "ignored", type(ignored.exc_value).__name__, file=sys.stderr
    )
    for seed in map(int, seeds):
        recorded = None if directory == "-" else pathlib.Path(directory) / str(seed)
        print("ANSWER " + json.dumps(Program(seed, recorded).run()), flush=True)
    sys.exit(exit_code(int(seeds[-1])))


if __name__ == "__main__":
    main()
