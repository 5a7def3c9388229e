"""Notes on calls belong to a thread, and end in a forked child."""

import threading
from typing import Any

from tb_memplugin.recorder.watch.notes import CallNotes


def test_each_thread_has_its_own_calls() -> None:
    notes = CallNotes()
    notes.of_thread.stack.append("layer")
    notes.of_thread.again.add(5)
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append((list(notes.of_thread.stack), set(notes.of_thread.again))))
    thread.start()
    thread.join()
    assert seen == [([], set())]
    assert (notes.of_thread.stack, notes.of_thread.again) == (["layer"], {5})


def test_a_forked_child_takes_no_more_notes_of_the_window() -> None:
    class Graph:
        """Replaces a function graph: only its identity matters."""

    notes = CallNotes()
    notes.eager_paths, notes.eager_gradients = {1: "net"}, []
    held = notes._lock
    with held:  # by a thread that does not exist in the child
        notes.abandon()
        assert notes.notes(Graph()).spans == []
    assert (notes.eager_paths, notes.eager_lines, notes.eager_gradients) == (None, None, None)
