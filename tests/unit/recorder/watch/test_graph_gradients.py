"""What a backward pass needs and makes, in function graphs made by hand, op by op."""

from types import SimpleNamespace
from typing import Any

import pytest

from tb_memplugin.recorder.watch.call_notes import GraphNotes, Span
from tb_memplugin.recorder.watch.graph_gradients import (
    backward_reads,
    buffer_reusers,
    early_ops,
    gradient_ops,
    inputs_of_backward,
    saved_for_backward,
    unread_outputs,
)
from tb_memplugin.recorder.watch.graph_ops import Call, GraphOps

PASSES = {"F": "forward", "B": "backward", "U": "update", "O": "other"}


class Case:
    """A graph from ops such as ``F sum AddN a b:1`` (pass, name, type, inputs), each with the pass that it is given.

    Attributes:
        outputs: Names of the ops that the function returns; without them, all ops are needed.
        in_layer: Name of the op that a noted call of a layer made.
        results: Numbers of results of ops that have not just one.
        integers: Names of the ops whose results are integers.
    """

    def __init__(
        self, ops: str, outputs: str = "", in_layer: str = "", results: dict[str, int] | None = None, integers: str = ""
    ) -> None:
        made: dict[str, Any] = {}
        passes = []
        for text in ops.split(","):
            given, name, kind, *inputs = text.split()
            sources = [source.partition(":") for source in inputs]
            op = SimpleNamespace(name=name, type=kind, control_inputs=[], op_def=SimpleNamespace(is_stateful=False))
            op.inputs = [made[source].outputs[int(index or 0)] for source, _, index in sources]
            dtype = SimpleNamespace(is_integer=name in integers.split())
            count = (results or {}).get(name, 1)
            op.outputs = [SimpleNamespace(op=op, value_index=index, dtype=dtype) for index in range(count)]
            made[name] = op
            passes.append(PASSES[given])
        returned = [made[name].outputs[0] for name in outputs.split()]
        self.graph = GraphOps(SimpleNamespace(get_operations=lambda: list(made.values()), outputs=returned))
        self.layers: Any = SimpleNamespace(pass_name=passes, in_layer=[name == in_layer for name in made])

    def names(self, numbers: Any) -> set[str]:
        return {self.graph.ops[number].name for number in numbers}

    def saved(self, early: str = "", call: Call | None = None) -> set[str]:
        numbers = {self.graph.number[name] for name in early.split()}
        return self.names(saved_for_backward(self.graph, self.layers, numbers, call or Call()))


# --- saved for backward -----------------------------------------------------------------------------------------------


RUN = "F a Relu, F b Relu, B d_a ReluGrad a, B d_b ReluGrad b"
CALLED_AGAIN = "B a Relu, B d_a ReluGrad a"
LOOP = "O list Placeholder, O value Relu, O push TensorListPushBack list value"
STEP = "O x Placeholder, F relu Relu x, F add AddV2 relu x, B d_add ReluGrad relu, B d_x MatMul d_add x"


@pytest.mark.parametrize(
    ("case", "given", "saved"),
    [
        (Case(f"{STEP}, U new AssignSub add d_x"), {}, {"relu", "x"}),
        # Ops that only read a shape save nothing, nor what TensorFlow does not run.
        (Case("F relu Relu, B shape Shape relu, B zeros Fill shape"), {}, set()),
        (Case(RUN), {}, {"a", "b"}),
        (Case(RUN, outputs="d_a"), {}, {"a"}),
        # Results of a layer that runs in the backward pass.
        (Case(CALLED_AGAIN), {}, set()),
        (Case(CALLED_AGAIN, in_layer="a"), {}, {"a"}),
        # Results of early ops for the others.
        (Case("B a Relu, B b Neg a, B c Mul b"), {"early": "a b"}, {"b"}),
        # What a loop pushes in the forward pass.
        (Case(LOOP), {"call": Call(pass_name="forward")}, {"value"}),
        (Case(LOOP), {"call": Call(pass_name="backward")}, set()),
        # Outputs that the caller's backward pass reads.
        (Case("F a Relu, F b Relu", outputs="a b"), {"call": Call(saved_for_backward=frozenset({1, 7}))}, {"b"}),
    ],
)
def test_results_that_a_backward_op_reads_are_saved(case: Case, given: dict[str, Any], saved: set[str]) -> None:
    assert case.saved(**given) == saved


@pytest.mark.parametrize(
    ("reads", "unread"), [("loss:1", {"loss": (0,)}), ("loss loss:1", {}), ("", {}), ("loss", {"loss": (1,)})]
)
def test_outputs_of_saved_ops_that_no_backward_op_reads_are_known(reads: str, unread: Any) -> None:
    ops = f"F loss SparseSoftmaxCrossEntropyWithLogits, F other Relu, F mean Mean loss, B d Mul {reads} other"
    case = Case(ops, results={"loss": 2})
    found = unread_outputs(case.graph, backward_reads(case.graph, case.layers), {0, 1})
    assert {case.graph.ops[number].name: outputs for number, outputs in found.items()} == unread


def test_backward_ops_that_tensorflow_runs_read_outputs() -> None:
    ops = "F call PartitionedCall, F next Relu call:0, B d Mul call:1 call:2 next, B never Mul call:3"
    case = Case(ops, outputs="d", results={"call": 4})
    assert backward_reads(case.graph, case.layers) == {(0, 1), (0, 2), (1, 0)}


# --- readers ----------------------------------------------------------------------------------------------------------


def test_a_buffer_may_be_reused_by_readers_of_the_same_pass_and_type() -> None:
    ops = "F a MatMul, F relu Relu a, F argmax ArgMax a, F shape Shape a, F assert Assert a, B d_a ReluGrad a"
    case = Case(ops, results={"assert": 0}, integers="argmax")
    assert buffer_reusers(case.graph, case.layers) == {0: ["relu"]}


def test_a_backward_op_reads_results_of_the_forward_pass_and_gradients() -> None:
    case = Case("F a Relu, B g Mul, B h Mul, B d Mul h a g a h, F f Mul a g")
    number = case.graph.number
    assert inputs_of_backward(case.graph, case.layers, number["d"]) == ((1, 3), ("g", "h"))
    assert inputs_of_backward(case.graph, case.layers, number["f"]) == ((), ())


# --- gradients --------------------------------------------------------------------------------------------------------


class Variable:
    pass


KERNEL, UNKNOWN = Variable(), Variable()


def found_gradients(case: Case, *noted: tuple[str, int, Any], call: Call | None = None) -> Any:
    notes = GraphNotes()
    notes.gradients = [(name, index, lambda variable=variable: variable) for name, index, variable in noted]
    owners = {KERNEL: ("kernel", "net/a")}
    return gradient_ops(case.graph, case.layers, notes, call or Call(), owners.get)


def gradients(case: Case, *noted: tuple[str, int, Any], call: Call | None = None) -> Any:
    found = found_gradients(case, *noted, call=call)
    return {case.graph.ops[number].name: layer for number, layer in found.layer.items()}, found.layer_of_output


def test_a_gradient_is_that_of_a_variable_with_an_owner() -> None:
    noted = [("a", 0, KERNEL), ("b", 0, UNKNOWN), ("c", 0, None), ("elsewhere", 0, KERNEL)]
    assert gradients(Case("B a MatMul, B b MatMul, B c MatMul"), *noted) == ({"a": "net/a"}, {})


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
    assert gradients(Case(ops), ("last", 0, KERNEL))[0] == dict.fromkeys(names, "net/a")


def test_gradients_that_a_function_returns_are_its_callers() -> None:
    case = Case("B call PartitionedCall, B a MatMul", outputs="a", results={"call": 3})
    call = Call(gradients={0: "net/caller", 5: "net/none"})
    assert gradients(case, ("call", 2, KERNEL), call=call) == ({"a": "net/caller"}, {(0, 2): "net/a"})


TAPE = "F x Relu, B one Fill, B mask Cast x, B zeros ZerosLike x, B d Mul one mask, B kernel MatMul d x"


@pytest.mark.parametrize(
    ("more", "spans", "gradients", "expected"),
    [
        # Backward ops that depend on no gradient are early; one that makes zeros holds nothing.
        ("", [(1, 6)], "kernel", "mask"),
        ("", [(1, 6)], "", "mask"),
        # Nothing is without a tape or its first gradient: a tape that begins with something else, or two of them.
        ("", [], "", ""),
        ("", [(0, 6)], "", ""),
        ("", [(1, 6), (2, 6)], "", ""),
        # One whose ops were removed changes nothing.
        *(("", [(1, 6), (start, 12)], "", "mask") for start in (6, 9)),
        # A gradient that does not depend on the tape's first one makes all unknown.
        (", B other MatMul mask, U update MatMul mask", [(1, 8)], "kernel other", ""),
        (", B other MatMul mask, U update MatMul mask", [(1, 8)], "kernel update", "mask other"),
        # The rows of a sparse gradient depend on none, and an op without results has no rows.
        (", B rows Reshape x", [(1, 7)], "kernel rows", "mask rows"),
        (", B none NoOp x", [(1, 7)], "kernel none", ""),
    ],
)
def test_backward_ops_that_depend_on_no_gradient_are_early(
    more: str, spans: list[tuple[int, int]], gradients: str, expected: str
) -> None:
    case = Case(TAPE + more, integers="rows", results={"none": 0})
    case.layers.backward_spans = [Span(start, end, 0, 0, "backward", None) for start, end in spans]
    made: Any = SimpleNamespace(layer={case.graph.number[name]: "net/a" for name in gradients.split()})
    assert case.names(early_ops(case.graph, case.layers, made)) == set(expected.split())


@pytest.mark.parametrize(("between", "dense"), [("Mul", {"sum"}), ("Square", set())])
def test_a_sparse_gradient_that_the_optimizer_makes_dense_is_a_gradient(between: str, dense: set[str]) -> None:
    ops = f"B values Reshape, B rows Reshape, U clipped {between} values, U sum UnsortedSegmentSum clipped rows"
    case = Case(f"{ops}, U other UnsortedSegmentSum clipped clipped", integers="rows")
    found = found_gradients(case, ("values", 0, KERNEL), ("rows", 0, KERNEL))
    assert case.names(found.made_dense) == dense and case.names(found.layer) & {"sum"} == dense
