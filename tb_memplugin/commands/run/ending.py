"""What is printed when a recorded program has ended."""

import shlex
from collections.abc import Sequence

from tb_memplugin.commands.inspect.table import format_run
from tb_memplugin.commands.loading import Runs

NOTHING = (
    "Nothing was recorded: the program called no `fit`, `evaluate`, `predict` or `train_on_batch` of a Keras model, "
    "and no `tf.function` twice that takes gradients and updates variables."
)


def ending(logdir: str, given: str, names: Sequence[str], notes: Sequence[str]) -> str:
    """The runs as ``tb-memplugin inspect`` prints them, what was not recorded, and how to see more.

    Args:
        logdir: Directory of the runs.
        given: The directory as the user wrote it.
        names: The runs; without any, the text says so.
        notes: Sentences on what was not recorded.
    """
    parts = []
    if names:
        loaded = Runs(logdir)
        for name in names:
            known = name in loaded
            parts.append(
                format_run(loaded[name], by_worker=loaded.by_worker(name)) if known else f"{name}: nothing was written"
            )
    elif not notes:
        parts.append(NOTHING)
    parts.extend(notes)
    if names:
        parts.append(f"See it in TensorBoard, tab Memory:\ntensorboard --logdir {shlex.quote(given)}")
    return "\n" + "\n\n".join(parts)
