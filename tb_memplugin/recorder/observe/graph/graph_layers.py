"""The layer and the pass of each op of a function graph."""

import functools
import re
from collections.abc import Mapping

from tb_memplugin.model.trace import Pass
from tb_memplugin.recorder.observe.graph.call_notes import GraphNotes, Span
from tb_memplugin.recorder.observe.graph.graph_ops import Call, GraphOps, VariableOwner

GRADIENT_SCOPE = "gradient_tape/"
"""TensorFlow's prefix of the forward op's name in the names of the ops of its gradient."""
_LOOP_GRADIENT = re.compile(r"gradients/(.+?)_grad/")  # in the gradient of a loop's body, after the body's own op


class OpLayers:
    """Layer and pass of each op of a graph, by the op's number.

    Layer calls that were noted while the graph was traced decide. Other ops follow from the forward op that their name
    refers to, and optimizer ops from the variable that they read or write (`place_updates`).

    Args:
        graph: The graph.
        notes: Calls noted while the graph was traced.
        paths: id of a layer to its path.
        call: Properties inherited from the calling op.
        forward: Layers of the graph that this one is the gradient of, if any.

    Attributes:
        layer: Path of the layer, None for none.
        pass_name: Part of the step.
        in_layer: Whether a noted call of the layer made the op.
        backward_spans: The backward passes that no other one differentiates. Another one is part of the forward pass.
    """

    def __init__(
        self, graph: GraphOps, notes: GraphNotes, paths: Mapping[int, str], call: Call, forward: "OpLayers | None"
    ) -> None:
        self._graph = graph
        self.layer: list[str | None] = [call.layer] * len(graph)
        self.pass_name: list[Pass] = [call.pass_name or "other"] * len(graph)
        self.in_layer = [False] * len(graph)
        self.backward_spans = _backward_spans(graph, notes, call)
        self._inner = [False] * len(graph)
        self._place_spans(notes, paths)
        self._place_vectorized()
        self._default_passes()
        self._scopes = self._scopes_of_layers()
        self._place_gradients(forward)

    def _place_spans(self, notes: GraphNotes, paths: Mapping[int, str]) -> None:
        """Assign the ops of each noted call to its layer and pass; of nested calls, the innermost wins."""
        threads: list[int | None] = [None] * len(self._graph)  # of the call that gave an op its pass
        outer = self.backward_spans
        for span in sorted(notes.spans, key=lambda span: (span.start, span.depth)):
            path = _path(span, paths) if span.kind == "layer" else None
            if span.kind == "layer" and path is None:
                continue
            for number in range(span.start, min(span.end, len(self._graph))):
                if span.kind == "backward" and not any(one.start <= span.start < one.end for one in outer):
                    self._inner[number] = True
                    self.pass_name[number] = "forward"
                elif span.kind != "layer":
                    self.pass_name[number] = span.kind
                elif self.pass_name[number] == "other" or threads[number] not in (None, span.thread):
                    self.pass_name[number] = "forward"
                threads[number] = span.thread
                if path is not None:
                    self.layer[number] = path
                    self.in_layer[number] = True

    def late_pass(self, number: int) -> int | None:
        """Number of the backward pass that an op is part of, if that pass differentiates another one."""
        original = self._graph.vectorized_from(number)
        while original is not None:
            number, original = original, self._graph.vectorized_from(original)
        return next((at for at, span in enumerate(self._late_spans) if span.start <= number < span.end), None)

    @functools.cached_property
    def _late_spans(self) -> list[Span]:
        inner = {number for number, is_inner in enumerate(self._inner) if is_inner}
        return [span for span in self.backward_spans if inner and not inner.isdisjoint(_needed_by(self._graph, span))]

    def _place_vectorized(self) -> None:
        """Give ops that compute another op for all iterations of a vectorized loop that op's layer and pass."""
        for number in range(len(self._graph)):
            original = self._graph.vectorized_from(number)
            if original is not None:
                self.layer[number], self.pass_name[number] = self.layer[original], self.pass_name[original]
                self.in_layer[number], self._inner[number] = self.in_layer[original], self._inner[original]

    def _default_passes(self) -> None:
        """Set the pass of ops that no layer made.

        Ops of TensorFlow's gradient scopes are backward. Others that precede the backward pass are forward: the loss.
        """
        first = min((span.start for span in self.backward_spans), default=None)
        for number, op in enumerate(self._graph.ops):
            if self.pass_name[number] != "other":
                continue
            if GRADIENT_SCOPE in op.name or op.name.startswith("gradients/"):
                self.pass_name[number] = "backward"
            elif first is not None and number < first:
                self.pass_name[number] = "forward"

    def _scopes_of_layers(self) -> dict[str, str | None]:
        """Name scope to the first layer with forward ops in it."""
        scopes: dict[str, str | None] = {}
        for number, op in enumerate(self._graph.ops):
            if self.layer[number] is not None and GRADIENT_SCOPE not in op.name:
                scopes.setdefault(op.name.rpartition("/")[0], self.layer[number])
        return scopes

    def _place_gradients(self, forward: "OpLayers | None") -> None:
        """Assign gradient ops to the layer of the forward op in their name, or else of their inputs."""
        for number in range(len(self._graph)):
            if not self._of_gradient(number) or self.in_layer[number]:
                continue
            named, layer = self._layer_by_name(self._graph.ops[number].name, forward)
            if named:
                self.layer[number] = layer
                continue
            inputs = (source for source, _ in self._graph.inputs[number] if self._of_gradient(source))
            layers = (self.layer[source] for source in inputs)
            self.layer[number] = next((layer for layer in layers if layer is not None), self.layer[number])

    def _of_gradient(self, number: int) -> bool:
        return self.pass_name[number] == "backward" or self._inner[number]

    def _layer_by_name(self, name: str, forward: "OpLayers | None") -> tuple[bool, str | None]:
        """Whether the name of a gradient op refers to a forward op, and that op's layer."""
        inner = _LOOP_GRADIENT.search(name)
        if inner and forward is not None and inner[1] in forward._graph.number:
            return True, forward.layer[forward._graph.number[inner[1]]]
        at = name.rfind(GRADIENT_SCOPE)
        return self._layer_of_scope(name[at + len(GRADIENT_SCOPE) :]) if at >= 0 else (False, None)

    def _layer_of_scope(self, name: str) -> tuple[bool, str | None]:
        """Whether a name, or a scope above it, belongs to the forward pass, and its layer."""
        while name:
            number = self._graph.number.get(name)
            if number is not None and GRADIENT_SCOPE not in name:
                return True, self.layer[number]
            if name in self._scopes:
                return True, self._scopes[name]
            name = name.rpartition("/")[0]
        return False, None

    def place_updates(self, variables: Mapping[str, VariableOwner], gradient_of: Mapping[int, str | None]) -> None:
        """Assign the optimizer's ops to the layer of the variable that they read or write.

        An op that mixes gradients of several layers, such as the concatenation that replicas on several workers sum,
        belongs to none of them; what follows from its result belongs to the layer that alone reads it.

        Args:
            variables: As `GraphOps.captured_variables` returns them.
            gradient_of: Op number to the layer of the variable that the op's output is a gradient of.
        """
        mixed: dict[int, bool] = {}  # to whether the op only passes on what others mixed
        readers: list[set[str | None]] = [set() for _ in range(len(self._graph))]
        updates = [number for number, name in enumerate(self.pass_name) if name == "update"]
        for number in updates:
            if self.layer[number] is None:
                self._place_update(number, variables, gradient_of, mixed)
        for number in reversed(updates):
            if mixed.get(number) and len(readers[number]) == 1:
                (self.layer[number],) = readers[number]
            for source, _ in self._graph.inputs[number]:
                readers[source].add(self.layer[number])

    def _place_update(
        self,
        number: int,
        variables: Mapping[str, VariableOwner],
        gradient_of: Mapping[int, str | None],
        mixed: dict[int, bool],
    ) -> None:
        """Assign one op by its inputs, or add it to `mixed` if they belong to several layers."""
        gradients: list[str] = []
        for source, _ in self._graph.inputs[number]:
            variable = variables.get(self._graph.ops[source].name)
            if variable is not None and variable[1] is not None:
                self.layer[number] = variable[1]
                return
            layer = gradient_of.get(source)
            if layer is None and self.pass_name[source] == "update":
                layer = self.layer[source]
            if layer is not None:
                gradients.append(layer)
        if len(set(gradients)) > 1:
            mixed[number] = False
        elif gradients:
            self.layer[number] = gradients[0]
        elif any(source in mixed for source, _ in self._graph.inputs[number]):
            mixed[number] = True


def _path(span: Span, paths: Mapping[int, str]) -> str | None:
    layer = span.layer()
    return None if layer is None else paths.get(id(layer))


def _backward_spans(graph: GraphOps, notes: GraphNotes, call: Call) -> list[Span]:
    """The outermost backward passes of a graph, without those that another one differentiates.

    A tape must have recorded such a pass, and the target of a later one depend on its results, as with a gradient
    penalty. In a function whose results the caller's backward pass reads, every pass is part of the forward pass.
    """
    spans: list[Span] = []
    for span in sorted(notes.spans, key=lambda span: (span.start, -span.end)):
        if span.kind == "backward" and span.start < span.end and not (spans and span.start < spans[-1].end):
            spans.append(span)
    if call.pass_name == "forward" and call.saved_for_backward:
        return []
    outer: list[Span] = []
    differentiated: set[int] = set()  # what the targets of later passes depend on
    for span in reversed(spans):
        if not span.recorded or differentiated.isdisjoint(range(span.start, span.end)):
            outer.append(span)
        differentiated |= _needed_by(graph, span)
    return outer[::-1]


def _needed_by(graph: GraphOps, span: Span) -> set[int]:
    """The ops that the target of a backward pass depends on."""
    return graph.sources(graph.number[name] for name in span.targets if name in graph.number)
