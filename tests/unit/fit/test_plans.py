"""Plans for stored runs, within the budget as simulated and at the least cost first, and the lines
that apply them."""

import ast
import dataclasses
import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
from reading_cases import MIB

import tb_memplugin
from tb_memplugin.export import plan_of_run
from tb_memplugin.fit import (
    Conditions,
    Interval,
    Kind,
    Measured,
    Plan,
    PlanOption,
    Predictor,
    planner,
)
from tb_memplugin.fit.conditions import TOO_LITTLE, WIDE
from tb_memplugin.fit.plans import besides_memory, code_of
from tb_memplugin.fit.segments import RECOMPUTED, SegmentSearch, Units, units_of
from tb_memplugin.fit.simulation import recorded_peak
from tb_memplugin.schema import UNKNOWN_POWER, Layer, Run, format_bytes


def test_a_budget_of_the_recorded_range_needs_no_change_and_else_the_least_peak_is_said(
    run,
) -> None:
    plan = tb_memplugin.plan(run, budget="1TiB")
    least = tb_memplugin.plan(run, budget=plan.high_bytes)
    assert (least.fits, least.segments, least.accumulation, least.code) == (True, (), 1, "")
    assert "plan: no change: fits as recorded" in str(least)
    assert tb_memplugin.plan(run, budget=plan.high_bytes - 1).options[0].fits is False
    plan = tb_memplugin.plan(run, budget="1MiB")  # less than the weights
    assert plan.fits is False and plan.code == ""
    least = min(
        (one for one in plan.options if one.high_bytes is not None),
        key=lambda option: option.high_bytes,
    )
    assert plan.peak_bytes == least.peak_bytes
    assert (
        f"The smallest peak that was found is {format_bytes(least.peak_bytes)}"
    ) in plan.sentences[0]
    assert "plan: none of the simulated changes fits" in str(plan)
    # A failed batch size has no recorded peak, so the peak is not called so.
    assert f", unchanged peak {format_bytes(plan.options[0].peak_bytes)}\n" in str(plan)


def test_a_first_step_above_the_budget_fits_not_and_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN steps within a budget, the first of which is not
    steps = tb_memplugin.plan(run, budget="1TiB").options[0]
    first = steps.high_bytes + 3 * MIB
    monkeypatch.setattr(Predictor, "first_bytes", lambda *_: first)
    # WHEN steps are trained as well THEN no change only fits from the first step's peak on
    for budget in (first - 1, first):
        for measure in (None, lambda _: Measured(Interval(1, 2, 3), 0.1)):
            same = plan_of_run(run, budget, train=measure).options[0]
            assert same.fits is (budget == first)
    assert (f"no change: fits as recorded: The first step needs {format_bytes(first)},") in str(
        plan_of_run(run, first)
    )


def test_the_first_steps_peak_is_the_recorded_one_of_the_same_slots(stored: Run) -> None:
    of = Predictor.of(stored, "CPU:0")
    recorded = next(one for one in of.steps if one.first)
    assert of.first_bytes(Conditions()) == recorded_peak(recorded).bytes
    less = of.first_bytes(Conditions(batch_size=8))
    assert 0 < less < of.first_bytes(Conditions())
    # Other slots are not those that the recorded first step made.
    assert (
        of.first_bytes(Conditions(optimizer="sgd"))
        == of.first_bytes(Conditions(frozen=("net/a",)))
        == 0
    )


@pytest.mark.parametrize("share", [0.7, 0.5])
def test_a_plan_is_within_its_budget_as_simulated(stored: Run, share: float) -> None:
    recorded = tb_memplugin.plan(stored, budget="1TiB").unchanged_peak_bytes
    budget = int(share * recorded)
    plan = tb_memplugin.plan(stored, budget=budget)
    assert plan.fits is True and plan.accumulation > 1
    assert plan.low_bytes <= plan.peak_bytes <= plan.high_bytes <= budget
    # The range is the one that the post-mortem and `what_if` state for the plan's conditions, and
    # so is the breakdown.
    conditions = Conditions(batch_size=plan.batch_size, accumulate=True)
    told = Predictor.of(stored, plan.device).predict(conditions)
    assert (told.low_bytes, told.peak_bytes, told.high_bytes) == (
        plan.low_bytes,
        plan.peak_bytes,
        plan.high_bytes,
    )
    assert told.ledger == plan.ledger and sum(row.bytes for row in plan.ledger) == plan.peak_bytes
    # Nothing that costs less fits, and the whole batch is as before.
    before = plan.options[: [option.fits for option in plan.options].index(True)]
    assert before and not any(option.high_bytes <= budget for option in before)
    assert plan.batch_size is not None and plan.batch_size * plan.accumulation == 16
    assert f'"gradient_accumulation_steps": {plan.accumulation}' in plan.code
    assert f"batch_size = {plan.batch_size}" in plan.code


@pytest.mark.parametrize("recomputed", ["exact", None])
def test_a_run_that_recomputes_is_to_be_recorded_without_that_also_where_nothing_is_predicted(
    run: Run, recomputed: Literal["exact"] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a run whose simulation does not have the measured peak
    monkeypatch.setattr(
        Predictor,
        "reason_against",
        lambda *_: "Unknown: the simulation of the recorded steps peaks.",
    )
    layers = tuple(
        dataclasses.replace(layer, recomputed=recomputed) for layer in run.layer_tables[-1].layers
    )
    tables = (*run.layer_tables[:-1], dataclasses.replace(run.layer_tables[-1], layers=layers))
    needed, withheld, *anew = tb_memplugin.plan(
        dataclasses.replace(run, layer_tables=tables), budget="1MiB"
    ).sentences
    assert needed.startswith("As recorded") and withheld.startswith("Unknown")
    # THEN a recording that could be simulated would have no plan either, unless it is another one
    assert anew == ([RECOMPUTED] if recomputed else [])


def test_where_nothing_is_predicted_the_plan_says_why_instead_of_a_smallest_peak(
    stored: Run,
) -> None:
    # GIVEN a run whose steps peak higher than its traced ones
    ((name, figures),) = stored.samples.devices.items()
    devices = {name: dataclasses.replace(figures, peak_bytes=figures.peak_bytes * 5 // 4)}
    higher = dataclasses.replace(
        stored, samples=dataclasses.replace(stored.samples, devices=devices)
    )
    plan = tb_memplugin.plan(higher, budget="1MiB")
    assert (plan.fits, plan.options, plan.peak_bytes) == (None, (), None)
    needed, why = plan.sentences
    assert needed.startswith(
        f"As recorded, the training needs {format_bytes(plan.unchanged_peak_bytes or 0)}"
    )
    assert why.startswith("Unknown: the simulation of the recorded steps peaks")
    assert "none of the simulated changes" not in str(plan) and why in str(plan)
    # and for what it needed it is planned as recorded
    assert tb_memplugin.plan(higher, budget="1TiB").fits is True


def test_a_plan_says_why_it_recomputes_nothing(run: Run) -> None:
    plan = tb_memplugin.plan(run, budget="20MiB")
    assert "recompute" not in {option.kind for option in plan.options}
    assert "Recomputation is unknown: the model's layer graph was not recorded." in plan.sentences
    compiled = dataclasses.replace(
        run, requests=tuple(dataclasses.replace(one, mode="xla") for one in run.requests)
    )
    assert any(
        "XLA compiled the recorded step" in one
        for one in tb_memplugin.plan(compiled, budget="20MiB").sentences
    )


def with_units(run: Run, unit_of: Callable[[str], int | None]) -> Run:
    table = run.layer_tables[-1]
    layers = tuple(dataclasses.replace(layer, unit=unit_of(layer.path)) for layer in table.layers)
    return dataclasses.replace(
        run, layer_tables=(*run.layer_tables[:-1], dataclasses.replace(table, layers=layers))
    )


UNITS = {
    "embedding": 0,
    **dict.fromkeys(("multi_head_attention", "dropout", "layer_normalization"), 1),
    **dict.fromkeys(("dense", "dense_1", "layer_normalization_1"), 2),
    **dict.fromkeys(("multi_head_attention_1", "dropout_2", "layer_normalization_2"), 3),
    **dict.fromkeys(("dense_2", "dense_3", "layer_normalization_3"), 4),
}
"""The stored Transformer's layers between the sums of its residual connections."""


@pytest.fixture(scope="module")
def transformer(stored: Run) -> Run:
    return with_units(stored, lambda path: UNITS.get(path.removeprefix("transformer/")))


@pytest.fixture(scope="module")
def simulated(transformer: Run) -> Plan:
    """For four fifths of the recorded peak, without trained steps."""
    return plan_of_run(
        transformer, int(0.8 * (plan_of_run(transformer, "1TiB").unchanged_peak_bytes or 0))
    )


def test_layers_that_a_second_pass_may_not_repeat_are_in_no_segment(transformer: Run) -> None:
    table, step = transformer.layer_tables[-1].layers, transformer.requests[-1]
    assert [unit.first for unit, _ in units_of(transformer, step, table).found] == [0, 2, 3, 4]
    odd = dataclasses.replace(step, unrepeatable=("transformer/multi_head_attention_1/softmax",))
    left = [unit for unit, _ in units_of(transformer, odd, table).found]
    assert [(unit.first, unit.last) for unit in left] == [(0, 1), (2, 2), (4, 4)]


def test_the_plan_lies_on_its_curve_and_its_ledger_sums_to_its_peak(transformer: Run) -> None:
    whole = tb_memplugin.plan(transformer, budget="1TiB")
    assert whole.options[0].fits and len(whole.curve) > 2
    *saving, same = whole.curve
    assert (same.peak_bytes, same.extra_time, same.segments) == (whole.unchanged_peak_bytes, 0.0, 0)
    # Each point costs less time than the one with the lower peak.
    times = [point.extra_time for point in whole.curve]
    assert times == sorted(times, reverse=True) and len(set(times)) == len(times)
    # The end of a point's range as the budget gives that point, or one that costs no more: none, if
    # that range is wide.
    for point in saving:
        plan = tb_memplugin.plan(transformer, budget=point.high_bytes)
        assert plan.fits and plan.extra_time is not None and plan.extra_time <= point.extra_time
        assert (plan.peak_bytes, plan.extra_time) in {
            (one.peak_bytes, one.extra_time) for one in plan.curve
        }
        assert sum(row.bytes for row in plan.ledger) == plan.peak_bytes
        assert bool(plan.segments) == (point.high_bytes < same.high_bytes)
        assert (
            plan.model == "transformer"
            and {segment[0] for segment in plan.segments} <= UNITS.keys()
        )
    assert sum(point.high_bytes < same.high_bytes for point in saving) >= 2
    assert sum(row.bytes for row in whole.ledger) == pytest.approx(whole.peak_bytes, rel=0.1)


def test_a_smaller_batch_is_the_largest_that_fits(stored: Run) -> None:
    predictor = Predictor.of(stored, "CPU:0")
    # GIVEN the allocator's limit as the budget THEN it is the one that `what_if` and
    # `largest_batch_size` find
    largest = predictor.largest_batch_size(Conditions())
    assert largest and 16 < largest < 4000 and largest & (largest - 1)
    plan = tb_memplugin.plan(stored, budget=predictor.capacity_bytes or 0, batch_size=4000)
    assert next(one.batch_size for one in plan.options if one.kind == "batch_size") == largest
    # AND with less, one example more would be over it
    budget = int(0.7 * (predictor.predict(Conditions()).peak_bytes or 0))
    option = next(
        one for one in tb_memplugin.plan(stored, budget=budget).options if one.kind == "batch_size"
    )
    assert option.fits and option.batch_size and option.high_bytes <= budget
    assert predictor.predict(Conditions(option.batch_size + 1)).high_bytes > budget


def test_freezing_is_an_option_with_its_layers(run: Run) -> None:
    plan = tb_memplugin.plan(run, budget="1MiB")
    (option,) = (one for one in plan.options if one.kind == "freeze")
    # All but the last of the two trained layers.
    assert option.sentence == "freeze the first 1 trainable layer" and len(option.frozen) == 1
    # AND it comes after what lets all layers learn
    single = [one.kind for one in plan.options if "_and_" not in one.kind]
    assert single[-1] == "freeze" and "batch_size" in single


def test_a_range_that_says_little_is_unknown_with_its_reason_but_for_a_change_that_fits(
    run: Run,
) -> None:
    # GIVEN freezing of which the recorded steps do not show what it saves
    predictor = Predictor.of(run, "CPU:0")
    freezing = Conditions(batch_size=4, frozen=tuple(layer.path for layer in predictor.layers[:2]))
    peak = predictor.peaks(freezing).peak
    assert peak.high_bytes > WIDE * peak.low_bytes
    budget = peak.high_bytes - 1
    # THEN in a plan and as a prediction it has no peak but a reason, in the terminal, too
    plan = tb_memplugin.plan(run, budget=budget // 2)
    (option,) = (one for one in plan.options if one.kind == "freeze")
    assert (option.peak_bytes, option.low_bytes, option.high_bytes, option.fits) == (
        None,
        None,
        None,
        None,
    )
    assert (
        option.reason
        and option.reason.startswith(TOO_LITTLE)
        and ("range covers both") in option.reason
    )
    assert f"{option.sentence}: {TOO_LITTLE}" in str(plan)
    between = dataclasses.replace(freezing, capacity_bytes=(peak.low_bytes + peak.high_bytes) // 2)
    assert (
        predictor.predict(between).assumptions[0] == TOO_LITTLE
        and predictor.predict(between).peak_bytes is None
    )
    # AND where even the most bytes fit, it has its peak
    assert (
        predictor.predict(dataclasses.replace(freezing, capacity_bytes=4 * budget)).high_bytes
        == peak.high_bytes
    )


def test_recomputation_is_combined_where_no_single_change_fits(transformer: Run) -> None:
    kinds = [one.kind for one in tb_memplugin.plan(transformer, budget=1).options]
    assert kinds[:3] == ["none", "recompute", "accumulate"]
    assert {
        "recompute_and_accumulate",
        "recompute_and_optimizer",
        "recompute_and_batch_size",
    } <= set(kinds)
    assert not any(
        "_and_" in one.kind for one in tb_memplugin.plan(transformer, budget="1TiB").options
    )


def test_recomputation_that_saves_nothing_is_no_option(stored: Run) -> None:
    # GIVEN a layer graph with a single layer, so that nothing between two cut points can be freed
    run = with_units(stored, lambda path: 0 if path == "transformer/dense_4" else None)
    plan = tb_memplugin.plan(run, budget="20MiB")
    assert not any(option.kind.startswith("recompute") for option in plan.options)
    assert plan.curve == ()


@pytest.mark.parametrize("budget", ["1MiB", "20MiB", "1TiB"])
def test_no_peak_is_below_the_bytes_that_are_live_at_once(run: Run, budget: str) -> None:
    # GIVEN sizes that may grow with the batch or not: the peak lies halfway, and the most bytes far
    # above it
    unknown = tuple(
        dataclasses.replace(
            one, batch_power=np.where(one.batch_power > 0, UNKNOWN_POWER, one.batch_power)
        )
        for one in run.requests
    )
    plan = tb_memplugin.plan(
        dataclasses.replace(run, requests=unknown), budget=budget, batch_size=64
    )
    assert 0.8 * plan.peak_bytes < plan.demand_bytes <= plan.peak_bytes < 0.9 * plan.high_bytes


SEGMENTS = (("a",), ("b", 'c"', "d"))


def layer(path: str, kind: str) -> Layer:
    return Layer(path, kind, True, 0, 0, 0, 0, None, None, None)


REMAT, NEW, SGD = (
    {call, "model.compile"}
    for call in ("tb_memplugin.remat", "type(optimizer).from_config", "keras.optimizers.SGD")
)
LAYERS = (layer("net", "Functional"), layer("net/inner", "Sequential"), layer("net/block", "Block"))


def option(kind: Kind, **changed: Any) -> PlanOption:
    values = {"segments": (), "batch_size": 8, "accumulation": 1, **changed}
    return PlanOption(
        kind, "", peak_bytes=0, low_bytes=0, high_bytes=0, fits=True, extra_time=None, **values
    )


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (option("none"), set()),
        (option("recompute", segments=SEGMENTS), REMAT),
        (option("accumulate", accumulation=4), {*NEW, "batch_size"}),
        (option("batch_size"), {"batch_size"}),
        (option("precision"), {"keras.mixed_precision.set_global_policy"}),
        (option("optimizer"), SGD),
        (
            option("recompute_and_accumulate", segments=SEGMENTS, accumulation=2),
            {*REMAT, *NEW, "batch_size"},
        ),
        (option("recompute_and_optimizer", segments=SEGMENTS), REMAT | SGD),
        (option("recompute_and_batch_size", segments=SEGMENTS), {*REMAT, "batch_size"}),
    ],
)
def test_the_lines_make_the_changes_of_the_option(chosen: PlanOption, expected: set[str]) -> None:
    tree = ast.parse(code_of(chosen, "Adam", LAYERS))
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assigned = {
        ast.unparse(node.targets[0]) for node in ast.walk(tree) if isinstance(node, ast.Assign)
    }
    assert (called - {"optimizer.get_config", "type"}) | (assigned & {"batch_size"}) == expected


def test_segments_are_pairs_of_their_ends() -> None:
    text = code_of(option("recompute", segments=SEGMENTS), "Adam", LAYERS)
    assert '[\n    ("a", "a"),\n    ("b", "d"),\n]' in text


@pytest.mark.parametrize("is_xla", [True, False])
@pytest.mark.parametrize(
    "kind", ["recompute", "accumulate", "optimizer", "freeze", "recompute_and_batch_size"]
)
def test_each_change_is_compiled_as_the_recorded_step_was(kind: Kind, is_xla: bool) -> None:
    chosen = option(kind, segments=SEGMENTS, accumulation=2, frozen=("a",))
    assert (f"model.compile(optimizer, loss, jit_compile={is_xla})") in code_of(
        chosen, "Adam", LAYERS, is_xla
    )


def test_what_changes_besides_memory_is_said() -> None:
    normalized = (*LAYERS, layer("net/bn", "BatchNormalization"))
    accumulated = besides_memory(option("accumulate", accumulation=4), normalized)
    assert accumulated == [
        "One update follows 4 batches, with the mean of their gradients.",
        "Batch normalization uses the statistics of 8 examples.",
    ]
    assert besides_memory(option("accumulate", accumulation=4), LAYERS) == accumulated[:1]
    assert besides_memory(option("recompute", segments=SEGMENTS), normalized) == []
    for chosen in (
        option("batch_size"),
        option("optimizer"),
        option("precision"),
        option("freeze", frozen=("a", "b")),
    ):
        assert len(besides_memory(chosen, LAYERS)) == 1


def test_changes_that_fit_come_first_after_the_training_as_it_is(run: Run) -> None:
    plan = tb_memplugin.plan(run, budget="20MiB")
    lines = str(plan).split("\n\n")[2].splitlines()[1:]
    words = ["yes", "maybe", "unknown", "no"]
    pattern = f"  ({'|'.join(words)})  "
    fits = [re.findall(pattern, line)[-1] for line in lines]
    assert fits[0] == "no" and fits[1:] == sorted(fits[1:], key=words.index)
    assert {"yes", "maybe"} <= set(fits[1:])
    # AND what may fit has the budget inside its range, what does not is above it
    for option in plan.options:
        if option.fits is None and option.peak_bytes is not None:
            assert option.low_bytes <= plan.budget_bytes < option.high_bytes
        if option.fits is False and option.peak_bytes is not None:
            assert option.low_bytes > plan.budget_bytes
    assert lines[1].strip().startswith(next(one.sentence for one in plan.options if one.fits))


def measuring(
    found: Mapping[str, tuple[int | Interval, float]],
) -> tuple[Callable[[PlanOption], Measured], list[str]]:
    """Answers as trained steps of each kind do; memory runs out in those of other kinds. And what
    was trained."""
    trained: list[str] = []

    def measure(one: PlanOption) -> Measured:
        trained.append(one.kind)
        if one.kind not in found:
            return Measured(None, None, "memory ran out", ran_out=True)
        peak, seconds = found[one.kind]
        return Measured(peak if isinstance(peak, Interval) else Interval(peak, peak, peak), seconds)

    return measure, trained


def test_trained_steps_offer_what_no_recording_shows_and_the_least_time_comes_first(
    transformer: Run, simulated: Plan
) -> None:
    recorded, budget = simulated.unchanged_peak_bytes or 0, simulated.budget_bytes
    saved, more = int(0.7 * recorded), int(0.98 * recorded)
    found = {
        "none": (recorded, 0.1),
        "recompute": (saved, 0.13),
        "accumulate": (saved, 0.14),
        "xla": (more, 0.05),
    }
    # GIVEN a graph optimizer without which steps need less, and XLA, with which they save too
    # little
    measure, trained = measuring({**found, "graph_optimizer": (saved, 0.11)})
    plan = plan_of_run(transformer, budget, train=measure)
    # THEN the unchanged steps, the first change that fits and both switches were trained
    (first, *_) = (one for one in simulated.options if one.fits)
    assert trained == ["none", first.kind, "graph_optimizer", "xla"]
    # AND the one is the plan, with its measured time and lines, the other none
    assert (plan.fits, plan.peak_bytes, plan.time_source, plan.demand_bytes) == (
        True,
        saved,
        "measured",
        None,
    )
    assert plan.extra_time == pytest.approx(0.1) and "time of a step: +10 % (measured)" in str(plan)
    assert "disable_meta_optimizer" in plan.code and "import tensorflow as tf" in plan.code
    assert "xla" not in {one.kind for one in plan.options} and any(
        "but for rounding" in one for one in plan.sentences
    )
    # AND without trained steps it is not offered, and the simulated time stays
    assert (
        "graph_optimizer" not in {one.kind for one in simulated.options}
        and simulated.extra_time == first.extra_time
    )
    # AND what runs out of memory when it is trained fits no longer, though the simulation says so
    out = plan_of_run(transformer, budget, train=measuring({})[0])
    assert "graph_optimizer" not in {one.kind for one in out.options}
    assert [one.fits for one in out.options if one.sentence == first.sentence] == [False]


def test_trained_steps_make_a_plan_where_no_simulation_is_one(stored: Run) -> None:
    # GIVEN a run whose simulation misses the measured peaks
    ((name, figures),) = stored.samples.devices.items()
    devices = {name: dataclasses.replace(figures, peak_bytes=figures.peak_bytes * 5 // 4)}
    higher = dataclasses.replace(
        stored, samples=dataclasses.replace(stored.samples, devices=devices)
    )
    recorded = plan_of_run(higher, "1MiB").unchanged_peak_bytes or 0
    saved = int(0.6 * recorded)
    measure, trained = measuring(
        {"none": (recorded, 0.1), "graph_optimizer": (saved, 0.11), "xla": (recorded, 0.1)}
    )
    plan = plan_of_run(higher, int(0.65 * recorded), train=measure)
    # THEN what was trained is offered with its peak, and nothing that is only simulated
    assert trained == ["none", "graph_optimizer", "xla"]
    assert [(one.kind, one.fits) for one in plan.options] == [
        ("none", False),
        ("graph_optimizer", True),
    ]
    assert (plan.fits, plan.peak_bytes, plan.unchanged_peak_bytes) == (True, saved, recorded)
    assert (
        plan.low_bytes is not None
        and plan.high_bytes is not None
        and plan.low_bytes < saved < plan.high_bytes
    )
    assert "disable_meta_optimizer" in plan.code and plan.extra_time == pytest.approx(0.1)
    assert any("the simulation of the recorded steps peaks" in one for one in plan.sentences)
    # AND if it is not enough, or was not trained, it is unknown whether anything fits
    for less in (
        plan_of_run(higher, int(0.5 * recorded), train=measure),
        plan_of_run(higher, int(0.65 * recorded), train=measuring({})[0]),
    ):
        assert (less.fits, less.code, less.unchanged_peak_bytes) == (None, "", recorded)
    assert "memory ran out" in str(less)


@pytest.mark.parametrize("grows", [True, False])
@pytest.mark.parametrize("share", [0.6, 0.99, 1.2])
def test_a_trained_peak_is_the_plans_peak_unless_a_process_of_its_own_may_need_more(
    transformer: Run, simulated: Plan, share: float, grows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = simulated.budget_bytes
    first = next(one for one in simulated.options if one.fits)
    assert first.low_bytes and first.peak_bytes and first.high_bytes
    rules = dataclasses.replace(Predictor.of(transformer, "CPU:0").rules, grows=grows)
    planned = planner.trained_options

    def train(predictor: Predictor, *arguments: Any) -> Any:
        monkeypatch.setitem(vars(predictor), "rules", rules)
        return planned(predictor, *arguments)

    monkeypatch.setattr(planner, "trained_options", train)
    peak = int(share * first.peak_bytes)
    measure, _ = measuring({"none": (2 * budget, 0.1), first.kind: (peak, 0.11)})
    found = next(
        one
        for one in plan_of_run(transformer, budget, train=measure).options
        if one.kind == first.kind
    )
    span = (found.low_bytes, found.peak_bytes, found.high_bytes)
    # THEN the range holds the trained peak, and the simulated one where chunks may be split less
    assert found.low_bytes and found.high_bytes and found.low_bytes <= peak <= found.high_bytes
    if share < 1 and share < first.low_bytes / first.peak_bytes and grows:
        assert span[1:] == (first.peak_bytes, first.high_bytes)
    else:
        # AND it is as wide as recorded steps of one batch size differ
        spread = Predictor.of(transformer, "CPU:0").evidence.spread
        assert (
            found.peak_bytes == peak
            and found.high_bytes <= (1 + spread) * peak + 1
            and 0.04 <= spread < 0.1
        )
    assert found.fits is (found.high_bytes <= budget)


def test_a_trained_peak_has_the_range_of_the_trained_steps_and_says_that_it_is_measured(
    transformer: Run, simulated: Plan
) -> None:
    recorded = simulated.unchanged_peak_bytes or 0
    # GIVEN trained steps whose peaks differ more than those of the recorded ones
    peak = Interval(int(0.5 * recorded), int(0.6 * recorded), int(0.79 * recorded))
    measure, _ = measuring({"none": (recorded, 0.1), "graph_optimizer": (peak, 0.1)})
    plan = plan_of_run(transformer, int(0.8 * recorded), train=measure)
    # THEN the range has all of them, and what is printed says how each peak is known
    (option,) = (one for one in plan.options if one.kind == "graph_optimizer")
    assert Interval.of(option) == peak and option.fits
    assert (option.peak_source, option.time_source) == ("measured", "measured")
    assert plan.peak_source == "measured" and f"\nmeasured peak: {peak}\n" in str(plan)
    sources = {
        row.split(")")[1].split()[0]
        for row in str(plan).split("\n\n")[2].splitlines()
        if "MiB)" in row
    }
    assert sources == {"measured", "predicted"}
    # AND one of them above the budget is one too many
    less = plan_of_run(transformer, int(0.78 * recorded), train=measure)
    assert [one.fits for one in less.options if one.kind == "graph_optimizer"] == [False]


def test_a_change_that_trained_steps_refute_is_no_plan(transformer: Run, simulated: Plan) -> None:
    budget = simulated.budget_bytes
    (first, *_) = (one.kind for one in simulated.options if one.fits)
    less = {"none": (2 * budget, 0.1), "accumulate": (budget // 2, 0.1), first: (budget + 1, 0.1)}
    measure, trained = measuring(less)
    plan = plan_of_run(transformer, budget, train=measure)
    refuted = next(one for one in plan.options if one.kind == first)
    assert not refuted.fits and refuted.peak_bytes == budget + 1 and len(trained) == 5
    assert plan.fits and next(one.kind for one in plan.options if one.fits) == trained[2] != first


@pytest.mark.parametrize(
    ("budget", "asked", "chosen"),
    [
        (70, ["small", "few"], "few"),  # far below: fewer segments, as few as are within the budget
        (50, ["small", "few"], "small"),
        (35, ["small", "cover 2"], "cover 2"),  # above: all units in larger segments
        (10, ["small", "cover 2", "cover 4"], "cover 2"),  # nothing is enough: the smallest peak
    ],
)
def test_a_compiled_step_is_asked_for_more_segments_or_fewer(
    budget: int, asked: list[str], chosen: str
) -> None:
    peaks = {"small": (40, 0.3), "few": (60, 0.1), "cover 2": (30, 0.4), "cover 4": (45, 0.5)}
    said: list[str] = []

    def simulated(name: str) -> Any:
        if name not in said:
            said.append(name)
        peak, time = peaks[name]
        return SimpleNamespace(
            name=name, extra_time=time, parts=SimpleNamespace(peak=SimpleNamespace(high_bytes=peak))
        )

    search: Any = SegmentSearch.__new__(SegmentSearch)
    search._units = Units(saved=(1,) * 4, found=((None, None),) * 4)  # type: ignore[arg-type]
    search.smallest_bytes, search.demand_bytes, search._conditions = 30, 90, None
    search._costs = SimpleNamespace(
        choose=lambda limit: "few" if limit > 35 else "small", covering="cover {}".format
    )
    whole = SimpleNamespace(peak=SimpleNamespace(high_bytes=100))
    search._predictor = SimpleNamespace(peaks=lambda conditions: whole)
    search._simulated, search._is_within = (
        simulated,
        lambda one, most: one.parts.peak.high_bytes <= most,
    )
    assert search.cheapest(budget).name == chosen and said == asked
