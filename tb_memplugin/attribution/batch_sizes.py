"""The batch size that a step's tensors show, beside what its calls were given.

Results that have the first dimension of an argument of the traced function say how long it was in
this step, also where the program leaves it open. Arguments of several lengths, such as the nodes,
edges and graphs of a union of graphs, are no batch of one size."""

import dataclasses

from tb_memplugin.attribution.execution import GraphExecution
from tb_memplugin.attribution.names import UNKNOWN_OP, buffers_of
from tb_memplugin.attribution.window import Window
from tb_memplugin.schema import BatchFacts, Module, OpFact, matches


def shown_batch(window: Window, execution: GraphExecution) -> BatchFacts:
    """The batch of a window's step: as the program names it, or else the noted size if no tensor
    contradicts it, or the only one of the open arguments."""
    batch = window.facts.batch
    if batch.named:
        return batch
    opened, fixed = set[int](), set[int]()
    holds: set[bool] = set()  # of each result of a layer, whether it can hold the noted batch
    of_layers = set[int]()  # first dimensions of layers' results that are open
    for chunk, birth in enumerate(window.birth):
        sizes = None if birth < 0 or window.is_input[birth] else window.dimensions(birth)
        if not sizes or 0 in sizes or -1 in sizes:
            continue
        fact = window.requester(chunk)
        shape = fact.output_shapes[0] if fact.has_rows and fact.output_shapes else None
        if shape and matches(shape, sizes):
            (opened if shape[0] < 0 else fixed).add(sizes[0])
        is_open = _is_open(fact, sizes)
        if len(sizes) < 2 or (True in holds and not is_open):
            continue  # as of most: it tells nothing more
        maker = execution.maker(chunk)
        if maker.pass_name == "forward" and maker.layer is not None:
            holds.add(any(size % (batch.size or 1) == 0 for size in sizes[:-1]))
            of_layers.update(sizes[:1] if is_open else ())
    for buffer in buffers_of(*_run_in(window)):
        sizes = None if buffer.shape is None or not buffer.named else buffer.shape.shape
        fact = window.names.fact(buffer.ops[0]) if sizes and buffer.ops else UNKNOWN_OP
        shape = fact.output_shapes[0] if fact.has_rows and fact.output_shapes else None
        if sizes and shape and matches(shape, sizes):
            (opened if shape[0] < 0 else fixed).add(sizes[0])
    size = batch.size if batch.size is None or True in holds or not holds else None
    if not opened | fixed <= {size}:
        size = min(opened) if len(opened) == 1 and not fixed else None
    if size and any(first % size for first in of_layers):
        size = None  # such as the nodes of a union of graphs
    return dataclasses.replace(batch, size=size)


def _run_in(window: Window) -> list[Module]:
    """The compiled modules of which the window requested the largest allocation: a profile has all
    modules of the process."""
    sizes = set(window.requested)
    largest = (max((one.bytes for one in it.allocations), default=0) for it in window.trace.modules)
    return [it for it, size in zip(window.trace.modules, largest, strict=True) if size in sizes]


def _is_open(fact: OpFact, sizes: tuple[int, ...]) -> bool:
    opened = [shape for shape in fact.output_shapes if shape and shape[0] < 0]
    return any(matches(shape, sizes) for shape in opened) if opened else False
