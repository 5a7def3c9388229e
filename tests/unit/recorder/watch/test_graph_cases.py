"""What a backward pass needs and makes, whose layers updates are, and lines, in function graphs made by hand."""

import pathlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tb_memplugin.recorder.heap import SourceLines, frames
from tb_memplugin.recorder.watch import call_notes
from tb_memplugin.recorder.watch.graphs import graph_facts
from tb_memplugin.recorder.watch.notes import CallNotes, Span
from tb_memplugin.schema import OpFact

KINDS: dict[str, Any] = {"F": "layer", "B": "backward", "U": "update"}
VARIABLES = {"kernel_a": ("a/kernel", "net/a"), "kernel_b": ("b/kernel", "net/b"), "rate": ("rate", None)}


class Named:
    """Stands for a variable or a layer."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self) -> "Named":
        """As a weak reference to it."""
        return self


class Graph:
    """A function graph of ops such as ``F sum AddN a b:1``: how it is made (F by a layer, B by a tape, U by an
    optimizer, O otherwise), name, type, inputs. An op that calls functions calls `callee`.

    Attributes:
        outputs: Names of the ops that the function returns; without them, all ops are needed.
        results: Numbers of results of ops that have not just one.
        integers: Names of the ops whose results are integers.
        gradients: Op, output and name of a variable for each noted gradient.
        spans: Instead of those of the ops' letters.
        stacks: (file, line), outermost first, of ops.
    """

    def __init__(
        self,
        ops: str,
        outputs: str = "",
        *,
        results: dict[str, int] | None = None,
        integers: str = "",
        gradients: tuple[tuple[str, int, str], ...] = (),
        spans: list[Span] | None = None,
        callee: "Graph | None" = None,
        stacks: dict[str, Any] | None = None,
    ) -> None:
        self.name, self.version, self.inputs, self.captures = "step", 1, [], []
        self.reads: list[str] = []
        self._ops: dict[str, Any] = {}
        self._callee = callee
        made: list[Span] = []
        for number, text in enumerate(ops.split(",")):
            letter, name, kind, *inputs = text.split()
            sources = [source.partition(":") for source in inputs]
            op = _Op(self, name, kind, (stacks or {}).get(name))
            op.inputs = [self._ops[source].outputs[int(index or 0)] for source, _, index in sources]
            is_integer = name in integers.split()
            dtype = SimpleNamespace(is_integer=is_integer, name="int64" if is_integer else "float32", size=4)
            count = (results or {}).get(name, 1)
            shape = tf.TensorShape(None)
            op.outputs = [SimpleNamespace(op=op, value_index=at, dtype=dtype, shape=shape) for at in range(count)]
            self._ops[name] = op
            if name in VARIABLES:
                self.captures.append((Named(name), op.outputs[0]))
            if letter in KINDS and made and made[-1].kind == KINDS[letter]:
                made[-1] = made[-1]._replace(end=number + 1)
            elif letter in KINDS:
                made.append(Span(number, number + 1, 0, 0, KINDS[letter], LAYER if letter == "F" else None))
        self.outputs = [self._ops[name].outputs[0] for name in outputs.split()]
        notes = call_notes.notes(self)
        notes.spans = made if spans is None else spans
        notes.gradients = [(name, index, Named(variable)) for name, index, variable in gradients]
        if callee is not None:
            callee.outer_graph = self  # type: ignore[attr-defined]

    def get_operations(self) -> list[Any]:
        return list(self._ops.values())

    def get_operation_by_name(self, name: str) -> Any:
        return self._ops[name]

    def _get_function(self, name: str) -> Any:
        return None if self._callee is None else SimpleNamespace(graph=self._callee)

    def facts(self, lines: SourceLines | None = None, of_callee: bool = False) -> dict[str, OpFact]:
        found = graph_facts({id(LAYER): "net/f"}, lambda one: VARIABLES.get(getattr(one, "name", "")), lines)
        call_notes.graphs.clear()
        return dict(found[int(of_callee)].ops)

    def names(self, fact: str, of_callee: bool = False) -> set[str]:
        """Names of the ops that a fact is true of."""
        return {name for name, one in self.facts(of_callee=of_callee).items() if getattr(one, fact)}


class _Op:
    control_inputs = ()
    op_def = SimpleNamespace(is_stateful=False)
    inputs: Any
    outputs: Any

    def __init__(self, graph: Graph, name: str, kind: str, stack: Any) -> None:
        self._graph, self.name, self.type, self._stack = graph, name, kind, stack

    def get_attr(self, name: str) -> Any:
        return SimpleNamespace(name="inner") if name == "f" else False

    @property
    def traceback(self) -> Any:
        self._graph.reads.append(self.name)
        frames = [frame if len(frame) == 3 else (*frame, "call") for frame in self._stack]
        return [SimpleNamespace(filename=file, lineno=line, name=name) for file, line, name in frames]


LAYER = Named("f")


@pytest.fixture(autouse=True)
def notes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(call_notes, "graphs", CallNotes().graphs)
    yield


RUN = "F a Relu, F b Relu, B d_a ReluGrad a, B d_b ReluGrad b"
STEP = "O x Placeholder, F relu Relu x, F add AddV2 relu x, B d_add ReluGrad relu, B d_x MatMul d_add x"
LOOP = "O list Placeholder, O value Relu, O push TensorListPushBack list value"
CALL = "F call PartitionedCall, F next Relu call, B d Mul call:1 call:7 next, B never Mul call:2"
AGAIN = "B a Relu, B d_a ReluGrad a"


@pytest.mark.parametrize(
    ("ops", "outputs", "saved"),
    [
        (f"{STEP}, U new AssignSub add d_x", "", {"relu", "x"}),
        # Ops that only read a shape save nothing, nor what TensorFlow does not run.
        ("F relu Relu, B shape Shape relu, B zeros Fill shape", "", set()),
        (RUN, "", {"a", "b"}),
        (RUN, "d_a", {"a"}),
        (AGAIN, "", set()),
        # Results of early ops for the others.
        ("F x Relu, B one Fill, B a Cast x, B b Neg a, B c Mul one b", "", {"x", "b"}),
    ],
)
def test_results_that_a_backward_op_reads_are_saved(ops: str, outputs: str, saved: set[str]) -> None:
    assert Graph(ops, outputs).names("saved_for_backward") == saved


def test_results_of_a_layer_that_runs_in_the_backward_pass_are_saved() -> None:
    spans = [Span(0, 2, 0, 0, "backward", None), Span(0, 1, 1, 0, "layer", LAYER)]
    assert Graph(AGAIN, spans=spans).names("saved_for_backward") == {"a"}


@pytest.mark.parametrize(
    ("caller", "callee", "outputs", "saved"),
    [
        # What a loop pushes in the forward pass.
        ("F call PartitionedCall", LOOP, "", {"value"}),
        ("B call PartitionedCall", LOOP, "", set()),
        # Outputs that the caller's backward pass reads, of a function that has two or three.
        (CALL, "F a Relu, F b Relu", "a b", {"b"}),
        (CALL, "F a Relu, F b Relu, F c Relu", "a b c", {"b"}),
    ],
)
def test_results_of_a_called_function_are_saved(caller: str, callee: str, outputs: str, saved: set[str]) -> None:
    returned = "d" if " d " in caller else ""
    graph = Graph(caller, returned, results={"call": 8}, callee=Graph(callee, outputs))
    assert graph.names("saved_for_backward", of_callee=True) == saved


@pytest.mark.parametrize(
    ("reads", "unread"), [("loss:1", {"loss": (0,)}), ("loss loss:1", {}), ("", {}), ("loss", {"loss": (1,)})]
)
def test_outputs_of_saved_ops_that_no_backward_op_reads_are_known(reads: str, unread: Any) -> None:
    ops = f"F loss SparseSoftmaxCrossEntropyWithLogits, F other Relu, F mean Mean loss, B d Mul {reads} other"
    facts = Graph(ops, results={"loss": 2}).facts()
    assert {name: fact.unread_outputs for name, fact in facts.items() if fact.unread_outputs} == unread


def test_a_buffer_may_be_reused_by_readers_of_the_same_pass_and_type() -> None:
    ops = "F a MatMul, F relu Relu a, F argmax ArgMax a, F shape Shape a, F assert Assert a, B d_a ReluGrad a"
    facts = Graph(ops, results={"assert": 0}, integers="argmax").facts()
    assert {name: fact.passes_to for name, fact in facts.items() if fact.passes_to} == {"a": ("relu",)}


def test_a_backward_op_reads_results_of_the_forward_pass_and_gradients() -> None:
    facts = Graph("F a Relu, B g Mul, B h Mul, B d Mul h a g a h, F f Mul a g").facts()
    reads = [(facts[name].forward_inputs, facts[name].gradient_inputs) for name in "df"]
    assert reads == [((1, 3), ("g", "h")), ((), ())]


def gradients(graph: Graph, of_callee: bool = False) -> dict[str, str | None]:
    return {name: one.gradient_of for name, one in graph.facts(of_callee=of_callee).items() if one.is_gradient}


def test_a_gradient_is_that_of_a_variable_with_an_owner() -> None:
    noted = (("a", 0, "kernel_a"), ("b", 0, "unknown"), ("elsewhere", 0, "kernel_a"))
    assert gradients(Graph("B a MatMul, B b MatMul, B c MatMul", gradients=noted)) == {"a": "net/a"}


@pytest.mark.parametrize(
    ("ops", "names"),
    [
        # The terms of a sum and values before a cast; not what another op reads as well, nor the forward pass's.
        (
            "F x Relu, B half MatMul x, B cast Cast half, B shared MatMul, B reads Neg shared, B sum AddN cast shared "
            "x, B last Reshape sum",
            ("last", "sum", "cast", "half"),
        ),
        # The search ends at products of gradients and at placeholders.
        ("B a MatMul, B last Mul a", ("last",)),
        ("B a Placeholder, B last Identity a", ("last",)),
    ],
)
def test_what_a_gradient_is_made_of_is_a_gradient_too(ops: str, names: tuple[str, ...]) -> None:
    assert gradients(Graph(ops, gradients=(("last", 0, "kernel_a"),))) == dict.fromkeys(names, "net/a")


@pytest.mark.parametrize(("index", "found"), [(1, {"b": "net/a"}), (2, {})])
def test_gradients_that_a_function_returns_are_its_callers(index: int, found: Any) -> None:
    callee = Graph("B a MatMul, B b MatMul", outputs="a b")
    noted = (("call", index, "kernel_a"),)
    graph = Graph("B call PartitionedCall", results={"call": 3}, gradients=noted, callee=callee)
    assert gradients(graph, of_callee=True) == found


TAPE = "F x Relu, B one Fill, B mask Cast x, B zeros ZerosLike x, B d Mul one mask, B kernel MatMul d x"
OTHER = ", B other MatMul mask, U update MatMul mask"


@pytest.mark.parametrize(
    ("more", "spans", "gradients", "expected"),
    [
        # Backward ops that depend on no gradient are early; one that makes zeros holds nothing.
        ("", [(1, 6)], "kernel", "mask"),
        ("", [(1, 6)], "", "mask"),
        # Nothing is without a tape or its first gradient: a tape that begins with something else, or two of them.
        ("", [], "", ""),
        ("", [(0, 6)], "", ""),
        ("", [(1, 2), (2, 6)], "", ""),
        # One whose ops were removed changes nothing.
        *(("", [(1, 6), (start, 12)], "", "mask") for start in (6, 9)),
        # A gradient that does not depend on the tape's first one makes all unknown.
        (OTHER, [(1, 7)], "kernel other", ""),
        (OTHER, [(1, 7)], "kernel update", "mask other"),
        # The rows of a sparse gradient depend on none, and an op without results has no rows.
        (", B rows Reshape x", [(1, 7)], "kernel rows", "mask rows"),
        (", B none NoOp x", [(1, 7)], "kernel none", ""),
    ],
)
def test_backward_ops_that_depend_on_no_gradient_are_early(more, spans, gradients, expected) -> None:
    noted = [Span(*ends, 0, 0, "backward", None) for ends in spans]
    noted += [Span(7, 8, 0, 0, "update", None)] if more == OTHER else []
    made = tuple((name, 0, "kernel_a") for name in gradients.split())
    graph = Graph(TAPE + more, integers="rows", results={"none": 0}, spans=noted, gradients=made)
    assert graph.names("early") == set(expected.split())


@pytest.mark.parametrize(("between", "dense"), [("Mul", {"sum"}), ("Square", set())])
def test_a_sparse_gradient_that_the_optimizer_makes_dense_is_a_gradient(between: str, dense: set[str]) -> None:
    ops = f"B values Reshape, B rows Reshape, U clipped {between} values, U sum UnsortedSegmentSum clipped rows"
    noted = (("values", 0, "kernel_a"), ("rows", 0, "kernel_a"))
    facts = Graph(f"{ops}, U other UnsortedSegmentSum clipped clipped", integers="rows", gradients=noted).facts()
    assert {name for name, one in facts.items() if one.made_dense} == dense
    assert {name for name in ("sum", "other") if facts[name].is_gradient} == dense


SOURCES = "O kernel_a Placeholder, O kernel_b Placeholder, O rate Placeholder, B grad_a MatMul, B grad_b MatMul"


@pytest.mark.parametrize(
    ("ops", "layers"),
    [
        (
            "U scaled Mul rate grad_a, U new Mul kernel_a scaled, U square Mul grad_b",
            {"scaled": "net/a", "new": "net/a", "square": "net/b"},
        ),
        # A norm over all gradients belongs to no layer.
        ("U norm Mul grad_a grad_b, U clipped Mul grad_b norm", {"norm": None, "clipped": "net/b"}),
        # Gradients that are concatenated, summed over the workers, and split again: the parts are their readers'.
        (
            "U concat Mul grad_b grad_a, U reduced Mul concat, U split Mul reduced, U part_a Mul split, U square_a Mul "
            "part_a, U new_a Mul kernel_a square_a, U part_b Mul split, U new_b Mul part_b kernel_b",
            {
                **dict.fromkeys(("concat", "reduced", "split")),
                **dict.fromkeys(("part_a", "square_a", "new_a"), "net/a"),
                **dict.fromkeys(("part_b", "new_b"), "net/b"),
            },
        ),
    ],
)
def test_an_update_belongs_to_the_layer_of_its_variable_or_gradient(ops: str, layers: Any) -> None:
    noted = (("grad_a", 0, "kernel_a"), ("grad_b", 0, "kernel_b"))
    facts = Graph(f"{SOURCES}, {ops}", gradients=noted).facts()
    assert {name: fact.layer for name, fact in facts.items() if fact.pass_name == "update"} == layers


TRAIN, TAPE_CALL, UPDATE = ("train.py", 1), ("train.py", 8), ("train.py", 9)


@pytest.fixture
def lines(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> SourceLines:
    monkeypatch.chdir(tmp_path)
    return SourceLines()


def with_stacks(letters: str, stacks: dict[str, Any], **given: Any) -> Graph:
    ops = (f"{letter} {name} Add" for letter, name in zip(letters, stacks, strict=True))
    return Graph(", ".join(ops), stacks=stacks, **given)


def lines_of(graph: Graph, lines: SourceLines) -> list[str | None]:
    call_notes.graphs.setdefault(graph, call_notes.notes(graph))
    return [fact.line for fact in graph.facts(lines).values()]


def test_a_recording_reads_the_lines_of_a_limited_number_of_ops(lines, monkeypatch) -> None:
    # GIVEN a recording that may read three more ops
    monkeypatch.setattr(frames, "MAX_OPS", 3)
    lines = SourceLines()
    small, larger = (with_stacks("FF", {name: [TRAIN] for name in names}) for names in ("ab", "cd"))
    for _ in range(3):  # what was read once costs nothing
        call_notes.graphs.pop(larger, None)
        assert lines_of(small, lines) == ["train.py:1"] * 2
    # THEN a graph with more than that has no lines, and costs nothing
    assert lines_of(larger, lines) == [None, None] and larger.reads == []
    # AND one that needs no more still has
    update = with_stacks("UUU", {name: [UPDATE] for name in "fgh"})
    assert lines_of(update, lines) == ["train.py:9"] * 3 and update.reads == ["f"]
    # UNTIL nothing is left
    assert lines_of(with_stacks("F", {"e": [TRAIN]}), lines) == [None]
