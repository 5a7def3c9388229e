"""What a traced window is asked: its strings, its lengths, the arguments of its functions."""

import dataclasses

from trace_cases import graph, one_step

from tb_memplugin.schema import GraphFacts, OpFact, TraceFacts


def test_a_string_is_found_by_its_index_and_minus_one_is_none() -> None:
    trace = dataclasses.replace(one_step().trace(), strings=("first", "second"))
    assert [trace.text(index) for index in (-1, 0, 1)] == [None, "first", "second"]
    assert len(trace) == len(trace.time_ps) == len(trace.kind)
    assert len(trace.ops) == len(trace.ops.name)


def test_arguments_are_those_of_the_functions_that_python_calls() -> None:
    made = [
        GraphFacts(name, {}, {}, root, frozenset(arguments))
        for name, root, arguments in (("step", True, ["x", "y"]), ("cond", False, ["z"]), ("eval", True, ["x", "w"]))
    ]
    assert TraceFacts(graphs=tuple(made)).arguments == {"x", "y", "w"}
    assert TraceFacts().arguments == frozenset()
    assert not graph(a=OpFact("dense", "forward"))[0].arguments
