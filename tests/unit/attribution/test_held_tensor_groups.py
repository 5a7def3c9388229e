"""A group of held tensors has the line of the op that made those of the step, live at its peak or not."""

import dataclasses

import pytest
from trace_cases import BACKWARD, Recorder, graph, ledger_of

from tb_memplugin.model import HeldTensorGroup
from tb_memplugin.model.trace import OpFact, TensorFact, TraceFacts

HISTORY, CACHE = "list `history` in module __main__", "list in attribute `cache` of Trainer"
BYTES = 4096


def kept(address: int, held_by: str | None = HISTORY, shape: tuple[int, ...] = (32, 32)) -> TensorFact:
    return TensorFact("held_tensors", BYTES, address, shape, "float32", held_by)


def groups(new: list[tuple[str, TensorFact]], old: list[TensorFact], lines: dict[str, str]) -> list[HeldTensorGroup]:
    """Groups of a step that reaches its peak before its ops make the `new` tensors that Python keeps."""
    step = Recorder(len(old) * BYTES)
    step.run("peak", [(0x90000, 64 * BYTES)], [(0x90000, 64 * BYTES)])
    for op, tensor in new:
        step.run(op, [(tensor.address, BYTES)])
    ops = {op: OpFact("m/a", "forward", line=lines.get(op)) for op, _ in new}
    facts = TraceFacts(
        trainable={"m": True, "m/a": True},
        graphs=graph(**ops, da=BACKWARD),
        tensors=tuple(old),
        tensors_at_end=tuple(tensor for _, tensor in new),
    )
    return list(ledger_of(step.trace(), facts).held_tensors)


OLD = [kept(0x1000), kept(0x3000)]
LEAK = HeldTensorGroup((32, 32), "float32", 2, 2 * BYTES, HISTORY)


def test_older_tensors_have_the_line_of_their_like_that_the_step_made() -> None:
    assert groups([("a", kept(0x5000))], OLD, {"a": "train.py:10"}) == [dataclasses.replace(LEAK, line="train.py:10")]


@pytest.mark.parametrize(
    "new",
    [kept(0x5000, CACHE), kept(0x5000, None), kept(0x5000, shape=(1024,))],
    ids=["another holder", "an unknown holder", "another shape"],
)
def test_other_tensors_of_the_step_tell_nothing_about_them(new: TensorFact) -> None:
    assert groups([("a", new)], OLD, {"a": "train.py:10"}) == [LEAK]


def test_of_several_lines_the_one_that_made_most_of_them_counts_even_if_it_is_unknown() -> None:
    new = [("a", kept(0x5000)), ("b", kept(0x7000)), ("b", kept(0x9000))]
    lines = {"a": "train.py:10", "b": "train.py:11"}
    assert groups(new, OLD, lines) == [dataclasses.replace(LEAK, line="train.py:11")]
    assert groups(new, OLD, {"a": "train.py:10"}) == [LEAK]


def test_a_step_that_makes_none_knows_no_line() -> None:
    assert groups([], OLD, {}) == [LEAK]


def test_a_group_has_what_the_paths_to_its_tensors_share() -> None:
    path = "module __main__ › history (list) › "
    old = [dataclasses.replace(tensor, retaining_path=f"{path}[{at}]") for at, tensor in enumerate(OLD)]
    assert groups([], old, {}) == [dataclasses.replace(LEAK, retaining_path=f"{path}[…]")]
    # A path that is unknown does not count.
    assert groups([], [old[0], OLD[1]], {}) == [dataclasses.replace(LEAK, retaining_path=f"{path}[0]")]


def test_a_tensor_that_lives_at_the_peak_is_counted_with_its_line() -> None:
    # GIVEN a leaked tensor of no layer, made before the step's largest allocation
    step = Recorder()
    step.run("loss", [(0x5000, BYTES)])
    step.run("peak", [(0x90000, 64 * BYTES)], [(0x90000, 64 * BYTES)])
    facts = TraceFacts(graphs=graph(loss=OpFact(None, "other", line="train.py:12")), tensors_at_end=(kept(0x5000),))
    assert ledger_of(step.trace(), facts).held_tensors == (
        HeldTensorGroup((32, 32), "float32", 1, BYTES, HISTORY, "train.py:12"),
    )
