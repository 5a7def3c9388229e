"""Notes on calls belong to a graph and a thread, and keep neither graphs nor layers alive."""

import gc
import threading
from typing import Any

from tb_memplugin.recorder.observe.graph.call_notes import CallNotes


class Graph:
    """Replaces a function graph: only its identity matters."""


def test_a_graph_has_one_set_of_notes_until_they_are_forgotten() -> None:
    notes, graph = CallNotes(), Graph()
    first = notes.notes(graph)
    first.gradients.append(("op", 0, None))
    assert notes.notes(graph) is first and notes.notes(Graph()) is not first
    notes.forget(graph)
    notes.forget(graph)
    assert notes.notes(graph).gradients == []


def test_notes_go_with_their_graph() -> None:
    notes, graph = CallNotes(), Graph()
    notes.notes(graph)
    notes.outermost_layers.add(graph)
    notes.recomputed[graph] = True
    del graph
    gc.collect()
    assert not notes.graphs and not notes.outermost_layers and not notes.recomputed


def test_each_thread_has_its_own_calls() -> None:
    notes = CallNotes()
    notes.of_thread.stack.append("layer")
    notes.of_thread.again.add(5)
    seen: list[Any] = []

    def look() -> None:
        seen.append((list(notes.of_thread.stack), set(notes.of_thread.again)))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [([], set())]
    assert (notes.of_thread.stack, notes.of_thread.again) == (["layer"], {5})


def test_a_forked_child_takes_no_more_notes_of_the_window() -> None:
    notes = CallNotes()
    notes.eager_paths, notes.eager_gradients = {1: "net"}, []
    held = notes._lock
    with held:  # by a thread that does not exist in the child
        notes.abandon()
        assert notes.notes(Graph()).spans == []
    assert (notes.eager_paths, notes.eager_lines, notes.eager_gradients) == (None, None, None)
