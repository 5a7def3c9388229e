"""What a backward pass needs and makes, in function graphs made by hand, op by op."""

from types import SimpleNamespace
from typing import Any

import pytest

from tb_memplugin.recorder.observe.graph.call_notes import GraphNotes, Span
from tb_memplugin.recorder.observe.graph.graph_gradients import (
    backward_reads,
    buffer_reusers,
    early_ops,
    gradient_ops,
    inputs_of_backward,
    saved_for_backward,
    unread_outputs,
)
from tb_memplugin.recorder.observe.graph.graph_ops import Call, GraphOps

FLOAT, INTEGER = SimpleNamespace(is_integer=False), SimpleNamespace(is_integer=True)
F, B, U = "forward", "backward", "update"


class Case:
    """A graph from ops (name, type, inputs such as ``a`` or ``a:1``, pass), with the passes that they were given.

    Attributes:
        outputs: Names of the ops that the function returns; without them, all ops are needed.
        in_layer: Names of the ops that a noted call of a layer made.
    """

    def __init__(
        self,
        *ops: tuple[str, str, list[str], str],
        outputs: tuple[str, ...] = (),
        in_layer: tuple[str, ...] = (),
        results: dict[str, int] | None = None,
        integers: tuple[str, ...] = (),
    ) -> None:
        made: dict[str, Any] = {}
        for name, kind, inputs, _ in ops:
            tensors = [made[source.partition(":")[0]].outputs[int(source.partition(":")[2] or 0)] for source in inputs]
            op = SimpleNamespace(name=name, type=kind, inputs=tensors, control_inputs=[])
            op.op_def = SimpleNamespace(is_stateful=False)
            dtype = INTEGER if name in integers else FLOAT
            count = (results or {}).get(name, 1)
            op.outputs = [SimpleNamespace(op=op, value_index=index, dtype=dtype) for index in range(count)]
            made[name] = op
        returned = [made[name].outputs[0] for name in outputs]
        self.graph = GraphOps(SimpleNamespace(get_operations=lambda: list(made.values()), outputs=returned))
        self.layers: Any = SimpleNamespace(
            pass_name=[one[3] for one in ops], in_layer=[one[0] in in_layer for one in ops]
        )

    def names(self, numbers: Any) -> set[str]:
        return {self.graph.ops[number].name for number in numbers}

    def saved(self, early: tuple[str, ...] = (), call: Call | None = None) -> set[str]:
        numbers = {self.graph.number[name] for name in early}
        return self.names(saved_for_backward(self.graph, self.layers, numbers, call or Call()))


# --- saved for backward -----------------------------------------------------------------------------------------------


RUN = [("a", "Relu", [], F), ("b", "Relu", [], F), ("d_a", "ReluGrad", ["a"], B), ("d_b", "ReluGrad", ["b"], B)]
CALLED_AGAIN = [("a", "Relu", [], B), ("d_a", "ReluGrad", ["a"], B)]
LOOP = [
    ("list", "Placeholder", [], "other"),
    ("value", "Relu", [], "other"),
    ("push", "TensorListPushBack", ["list", "value"], "other"),
]
STEP = [
    ("x", "Placeholder", [], "other"),
    ("relu", "Relu", ["x"], F),
    ("add", "AddV2", ["relu", "x"], F),
    ("d_add", "ReluGrad", ["relu"], B),
    ("d_x", "MatMul", ["d_add", "x"], B),
    ("new", "AssignSub", ["add", "d_x"], U),
]


@pytest.mark.parametrize(
    ("case", "given", "saved"),
    [
        (Case(*STEP), {}, {"relu", "x"}),
        # Ops that only read a shape save nothing, nor what TensorFlow does not run.
        (Case(("relu", "Relu", [], F), ("shape", "Shape", ["relu"], B), ("zeros", "Fill", ["shape"], B)), {}, set()),
        (Case(*RUN), {}, {"a", "b"}),
        (Case(*RUN, outputs=("d_a",)), {}, {"a"}),
        # Results of a layer that runs in the backward pass.
        (Case(*CALLED_AGAIN), {}, set()),
        (Case(*CALLED_AGAIN, in_layer=("a",)), {}, {"a"}),
        # Results of early ops for the others.
        (Case(("a", "Relu", [], B), ("b", "Neg", ["a"], B), ("c", "Mul", ["b"], B)), {"early": ("a", "b")}, {"b"}),
        # What a loop pushes in the forward pass.
        (Case(*LOOP), {"call": Call(pass_name="forward")}, {"value"}),
        (Case(*LOOP), {"call": Call(pass_name="backward")}, set()),
        # Outputs that the caller's backward pass reads.
        (Case(*RUN[:2], outputs=("a", "b")), {"call": Call(saved_for_backward=frozenset({1, 7}))}, {"b"}),
    ],
)
def test_results_that_a_backward_op_reads_are_saved(case: Case, given: dict[str, Any], saved: set[str]) -> None:
    assert case.saved(**given) == saved


@pytest.mark.parametrize(
    ("reads", "unread"), [(["loss:1"], {"loss": (0,)}), (["loss", "loss:1"], {}), ([], {}), (["loss"], {"loss": (1,)})]
)
def test_outputs_of_saved_ops_that_no_backward_op_reads_are_known(reads: list[str], unread: Any) -> None:
    case = Case(
        ("loss", "SparseSoftmaxCrossEntropyWithLogits", [], F),
        ("other", "Relu", [], F),
        ("mean", "Mean", ["loss"], F),
        ("d", "Mul", [*reads, "other"], B),
        results={"loss": 2},
    )
    saved = {case.graph.number["loss"], case.graph.number["other"]}
    found = unread_outputs(case.graph, backward_reads(case.graph, case.layers), saved)
    assert {case.graph.ops[number].name: outputs for number, outputs in found.items()} == unread


def test_backward_ops_that_tensorflow_runs_read_outputs() -> None:
    case = Case(
        ("call", "PartitionedCall", [], F),
        ("next", "Relu", ["call:0"], F),
        ("d", "Mul", ["call:1", "call:2", "next"], B),
        ("never", "Mul", ["call:3"], B),
        outputs=("d",),
        results={"call": 4},
    )
    assert backward_reads(case.graph, case.layers) == {(0, 1), (0, 2), (1, 0)}


# --- readers ----------------------------------------------------------------------------------------------------------


def test_a_buffer_may_be_reused_by_readers_of_the_same_pass_and_type() -> None:
    case = Case(
        ("a", "MatMul", [], F),
        ("relu", "Relu", ["a"], F),
        ("argmax", "ArgMax", ["a"], F),
        ("shape", "Shape", ["a"], F),
        ("assert", "Assert", ["a"], F),
        ("d_a", "ReluGrad", ["a"], B),
        results={"assert": 0},
        integers=("argmax",),
    )
    assert buffer_reusers(case.graph, case.layers) == {0: ["relu"]}


def test_a_backward_op_reads_results_of_the_forward_pass_and_gradients() -> None:
    case = Case(
        ("a", "Relu", [], F), ("g", "Mul", [], B), ("h", "Mul", [], B), ("d", "Mul", ["h", "a", "g", "a", "h"], B),
        ("f", "Mul", ["a", "g"], F),
    )  # fmt: skip
    number = case.graph.number
    assert inputs_of_backward(case.graph, case.layers, number["d"]) == ((1, 3), ("g", "h"))
    assert inputs_of_backward(case.graph, case.layers, number["f"]) == ((), ())


# --- gradients --------------------------------------------------------------------------------------------------------


class Variable:
    pass


KERNEL, UNKNOWN = Variable(), Variable()


def owner_of(variable: Any) -> Any:
    return ("kernel", "net/a") if variable is KERNEL else None


def gradients(case: Case, *noted: tuple[str, int, Any], call: Call | None = None) -> Any:
    notes = GraphNotes()
    notes.gradients = [(name, index, lambda variable=variable: variable) for name, index, variable in noted]
    found = gradient_ops(case.graph, case.layers, notes, call or Call(), owner_of)
    return {case.graph.ops[number].name: layer for number, layer in found.layer.items()}, found.layer_of_output


def test_a_gradient_is_that_of_a_variable_with_an_owner() -> None:
    case = Case(("a", "MatMul", [], B), ("b", "MatMul", [], B), ("c", "MatMul", [], B))
    noted = [("a", 0, KERNEL), ("b", 0, UNKNOWN), ("c", 0, None), ("elsewhere", 0, KERNEL)]
    assert gradients(case, *noted) == ({"a": "net/a"}, {})


def test_the_terms_of_a_sum_and_values_before_a_cast_are_gradients_too() -> None:
    case = Case(
        ("x", "Relu", [], F),
        ("half", "MatMul", ["x"], B),
        ("cast", "Cast", ["half"], B),
        ("shared", "MatMul", [], B),
        ("reads", "Neg", ["shared"], B),
        ("sum", "AddN", ["cast", "shared", "x"], B),
        ("shape", "Reshape", ["sum"], B),
    )
    # THEN neither what another op reads as well is one, nor what the forward pass made
    assert gradients(case, ("shape", 0, KERNEL))[0] == dict.fromkeys(("shape", "sum", "cast", "half"), "net/a")


@pytest.mark.parametrize("first", ["MatMul", "Placeholder"])
def test_the_search_ends_at_products_of_gradients_and_at_placeholders(first: str) -> None:
    case = Case(("a", first, [], B), ("b", "Mul" if first == "MatMul" else "Identity", ["a"], B))
    assert gradients(case, ("b", 0, KERNEL))[0] == {"b": "net/a"}


def test_gradients_that_a_function_returns_are_its_callers() -> None:
    case = Case(("call", "PartitionedCall", [], B), ("a", "MatMul", [], B), outputs=("a",), results={"call": 3})
    call = Call(gradients={0: "net/caller", 5: "net/none"})
    assert gradients(case, ("call", 2, KERNEL), call=call) == ({"a": "net/caller"}, {(0, 2): "net/a"})


def early(case: Case, *spans: tuple[int, int], gradient: tuple[str, ...] = ()) -> set[str]:
    case.layers.backward_spans = [Span(start, end, 0, 0, "backward", None) for start, end in spans]
    made: Any = SimpleNamespace(layer={case.graph.number[name]: "net/a" for name in gradient})
    return case.names(early_ops(case.graph, case.layers, made))


TAPE = [
    ("x", "Relu", [], F),
    ("one", "Fill", [], B),
    ("mask", "Cast", ["x"], B),
    ("zeros", "ZerosLike", ["x"], B),
    ("d", "Mul", ["one", "mask"], B),
    ("kernel", "MatMul", ["d", "x"], B),
]


def test_backward_ops_that_depend_on_no_gradient_are_early() -> None:
    case = Case(*TAPE)
    assert early(case, (1, 6), gradient=("kernel",)) == {"mask"}
    # AND one that makes zeros holds nothing
    assert early(case, (1, 6)) == {"mask"}


def test_without_a_tape_or_its_first_gradient_nothing_is_early() -> None:
    case = Case(*TAPE)
    assert early(case) == set()
    assert early(case, (0, 6)) == set()  # a tape that begins with something else
    assert early(case, (1, 6), (2, 6)) == set()
    for start in (6, 9):  # one whose ops were removed
        assert early(case, (1, 6), (start, 12)) == {"mask"}


def test_a_gradient_that_does_not_depend_on_the_tapes_first_one_makes_all_unknown() -> None:
    case = Case(*TAPE, ("other", "MatMul", ["mask"], B), ("update", "MatMul", ["mask"], U))
    assert early(case, (1, 8), gradient=("kernel", "other")) == set()
    assert early(case, (1, 8), gradient=("kernel", "update")) == {"mask", "other"}


def test_the_rows_of_a_sparse_gradient_depend_on_none() -> None:
    case = Case(*TAPE, ("rows", "Reshape", ["x"], B), integers=("rows",))
    assert early(case, (1, 7), gradient=("kernel", "rows")) == {"mask", "rows"}
    without = Case(*TAPE, ("rows", "NoOp", ["x"], B), results={"rows": 0})
    assert early(without, (1, 7), gradient=("kernel", "rows")) == set()


@pytest.mark.parametrize(("between", "dense"), [("Mul", True), ("Square", False)])
def test_a_sparse_gradient_that_the_optimizer_makes_dense_is_a_gradient(between: str, dense: bool) -> None:
    case = Case(
        ("values", "Reshape", [], B),
        ("rows", "Reshape", [], B),
        ("clipped", between, ["values"], U),
        ("sum", "UnsortedSegmentSum", ["clipped", "rows"], U),
        ("other", "UnsortedSegmentSum", ["clipped", "clipped"], U),
        integers=("rows",),
    )
    notes = GraphNotes()
    notes.gradients = [(name, 0, lambda: KERNEL) for name in ("values", "rows")]
    found = gradient_ops(case.graph, case.layers, notes, Call(), owner_of)
    assert case.names(found.made_dense) == ({"sum"} if dense else set())
    assert ("sum" in case.names(found.layer)) is dense
