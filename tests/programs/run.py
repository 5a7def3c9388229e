"""Runs one program as it is written, in this process, and prints what its own objects say of it.

usage: python run.py PROGRAM --directory DIRECTORY [--plain] [--seed N] [--times N] [--as-traced]
[--compiled]

Nothing is set beforehand. The program records its runs below the directory. ``--plain`` gives it a
recorder that does nothing, ``--seed`` makes its results repeat themselves, ``--times`` multiplies
its batch size. ``--as-traced`` turns off what makes TensorFlow regroup products, so that it runs
the graph as it was traced. ``--compiled`` gives Keras the default that it has on a GPU: models that
support it are compiled with XLA.
"""

import argparse
import contextlib
import importlib
import json
import os
import pathlib
import re
import sys
import types
from typing import Any

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]


class NoRecorder:
    """What `MemoryRecorder` offers, and nothing happens."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def __enter__(self) -> "NoRecorder":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def step(self, step: int, phase: str = "train") -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def source_of(program: str, times: int) -> tuple[pathlib.Path, str, int]:
    """The path and text of a program, with another batch size if `times` is not 1, and that batch
    size.

    ``drawn:3`` is the program ``drawn`` with ``SEED = 3``.
    """
    name, _, seed = program.partition(":")
    path = HERE / f"{name}.py"
    text = path.read_text(encoding="utf-8")
    if seed:
        text = text.replace("\nSEED = 0\n", f"\nSEED = {int(seed)}\n")
    found = re.search(r"^BATCH = (\d+)$", text, re.MULTILINE)
    assert found is not None, f"{program} does not state its batch size"
    batch = int(found[1]) * times
    return path, text if times == 1 else text.replace(found[0], f"BATCH = {batch}"), batch


def execute(text: str, path: pathlib.Path) -> dict[str, Any]:
    """The global names of a program after its last line."""
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    sys.modules["__main__"] = module
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module.__dict__


def keras_of(text: str) -> Any:
    """The Keras that a program imports."""
    return importlib.import_module("tf_keras" if "import tf_keras" in text else "keras")


def compile_by_default(keras: Any) -> None:
    trainer = importlib.import_module(f"{keras.__name__}.src.trainers.trainer")
    trainer.Trainer._resolve_auto_jit_compile = trainer.model_supports_jit


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--directory", default=".")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--as-traced", action="store_true")
    parser.add_argument("--compiled", action="store_true")
    options = parser.parse_args()
    path, text, batch = source_of(options.program, options.times)
    os.chdir(options.directory)
    sys.argv = [str(path)]

    import truth

    graphs = truth.Graphs()
    if options.seed is not None:
        import tensorflow as tf

        keras_of(text).utils.set_random_seed(options.seed)
        tf.config.experimental.enable_op_determinism()
    if options.as_traced:
        import tensorflow as tf

        tf.config.optimizer.set_experimental_options(
            {"arithmetic_optimization": False, "constant_folding": False}
        )
    if options.compiled:
        compile_by_default(keras_of(text))
    if options.plain:
        import tb_memplugin

        tb_memplugin.MemoryCallback = lambda *arguments, **others: keras_of(
            text
        ).callbacks.Callback()
        tb_memplugin.MemoryRecorder = NoRecorder
    program = execute(text, path)
    graph = graphs.of_training()
    saved = None if graph is None else truth.saved_bytes(graph, batch)
    answer = {
        "batch": batch,
        "digest": truth.digest(program),
        "saved": saved,
        **truth.variable_bytes(program),
    }
    print("\nANSWER " + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
