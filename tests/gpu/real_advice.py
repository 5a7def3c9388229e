"""Follows the advice for real-size models on a GPU: fixes after failed allocations, and plans under
a budget.

Models fail in their first step or in a later one, with Keras's default, which is to compile them,
and in graph mode. The first fix that is said to be enough, and the batch size that is printed
before the process ends, are followed in other processes. Plans have 70 % of a training's own peak
as their budget. Prints Markdown; each training is a process of its own.

usage: python tests/gpu/real_advice.py failures|plans [--runs DIR] [--jobs 6] [--only NAME …]
[--mode default|graph]
       python tests/gpu/real_advice.py train JSON
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import statistics
import sys
import tempfile
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent))

from harness import MIB, alone, answer, limit, on_next_card
from real_size import SETTLED, SMALLER, STEPS, made

FAILING = {"BERT-base": 9000, "ViT-B": 10_500, "ResNet50": 5200, "U-Net": 7000}
"""Model to the capacity in MiB, which the smaller batch fits into and the three times larger one
does not."""
PLANNED = {
    "BERT-base": 32,
    "GPT-2": 16,
    "ViT-B": 64,
    "ResNet50": 64,
    "EfficientNetB0": 64,
    "U-Net": 32,
}
"""Model to the batch size that is planned for."""
LARGE_MIB = 24_000
SHARE = 0.7
MODES = ["default", "graph"]
LOOKING = "Looking for what fits"


def train(
    name: str,
    batch: int,
    capacity: int = LARGE_MIB,
    graph: bool = False,
    before: int = 0,
    run: str | None = None,
    accumulation: int = 1,
    segments: list[list[str]] | None = None,
    budget: int | None = None,
    examples: int | None = None,
) -> None:
    """Trains a model, answers with its peaks or its failure; with a `budget`, asks for a plan
    instead.

    `before` is a batch size of steps before the others. With `run`, a directory, what a user types
    records it.
    """
    limit(capacity)
    import keras
    import tensorflow as tf

    import tb_memplugin

    model, inputs, targets = made(name)
    count = examples or max(batch, before) * STEPS
    x, y = inputs(count), targets(count)
    if budget is not None:
        started = time.monotonic()
        plan = tb_memplugin.plan(model, (x, y), budget=budget, batch_size=batch)
        print(plan, file=sys.stderr)
        figures = [
            "fits",
            "segments",
            "batch_size",
            "accumulation",
            "peak_bytes",
            "low_bytes",
            "high_bytes",
            "sentences",
        ]
        kind, option = next(
            ((one.kind, one.sentence) for one in plan.options if one.fits), ("", "")
        )
        found = {one: getattr(plan, one) for one in figures}
        answer(
            {
                **found,
                "kind": kind,
                "option": option,
                "seconds": time.monotonic() - started,
                "text": str(plan),
            }
        )
        return
    if graph or segments or accumulation > 1:
        if segments:
            model = tb_memplugin.remat(model, [(one[0], one[-1]) for one in segments])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        steps = accumulation if accumulation > 1 else None
        options = {"jit_compile": False} if graph else {}
        model.compile(keras.optimizers.Adam(gradient_accumulation_steps=steps), loss, **options)
    peaks: list[int] = []
    callbacks: list[Any] = [
        keras.callbacks.LambdaCallback(
            on_train_batch_begin=lambda step, logs: tf.config.experimental.reset_memory_stats(
                "GPU:0"
            ),
            on_train_batch_end=lambda step, logs: peaks.append(
                tf.config.experimental.get_memory_info("GPU:0")["peak"]
            ),
        )
    ]
    if run is not None:
        callbacks.append(tb_memplugin.MemoryCallback(run, at_failure=tb_memplugin.print_what_fits))
    try:
        if before:
            model.fit(x, y, batch_size=before, steps_per_epoch=6, verbose=0, callbacks=callbacks)
            peaks.clear()
        model.fit(x, y, batch_size=batch, verbose=0, callbacks=callbacks)
    except tf.errors.OpError as raised:
        error = f"{type(raised).__name__}: {raised!s:.2000}"
        answer(
            {"error": error, "compiled": bool(model.jit_compile), "steps": len(peaks), "peak": None}
        )
        raise  # what fits is printed as the exception ends the process
    settled = int(statistics.median(peaks[SETTLED:])) if len(peaks) > SETTLED else None
    answer({"error": "", "compiled": bool(model.jit_compile), "steps": len(peaks), "peak": settled})


def trained(**arguments: Any) -> dict[str, Any]:
    found, errors = alone(__file__, "train", json.dumps(arguments), environment=on_next_card())
    answered = found or {"error": errors, "compiled": None, "steps": 0, "peak": None}
    shown = {key: value for key, value in answered.items() if key != "text"}
    print(f"<!-- {arguments}: {shown} -->", flush=True)
    printed = errors[errors.rfind(LOOKING) :] if LOOKING in errors else ""
    if printed:
        print(f"<!-- {arguments}:\n{printed}\n-->", flush=True)
    return {**answered, "printed": printed}


def failures(root: pathlib.Path, names: list[str], modes: list[str], jobs: int) -> str:
    cases = [
        (name, mode == "graph", later)
        for name in names
        for mode in modes
        for later in (False, True)
    ]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        rows = list(pool.map(lambda case: failure(root, *case), cases))
    titles = (
        "model | step | fails in | verdict | request | layer or largest layers inside | fix | "
        "followed"
    )
    return "\n".join(
        [
            f"| {titles} | printed batch | followed |",
            "|---|---|---|---|---|---|---|---|---:|---|",
            *rows,
        ]
    )


def failure(root: pathlib.Path, name: str, graph: bool, later: bool) -> str:
    """The row of a training that fails, and of those that follow its first fix that is enough, and
    what it printed."""
    import tb_memplugin
    from tb_memplugin.schema import format_bytes

    step, place = "graph" if graph else "default", "a later step" if later else "the first step"
    directory = root / f"{name}-{step}-{later}"
    common = {"name": name, "graph": graph}
    small, large = SMALLER[name], 3 * SMALLER[name]
    before = {"before": small} if later else {}
    failed = trained(**common, batch=large, capacity=FAILING[name], run=str(directory), **before)
    label = f"| {name} | {'compiled' if failed['compiled'] else 'graph'} | {place}"
    if not failed["error"]:
        return f"{label} | did not fail | | | | | | |"
    (run,) = tb_memplugin.load(directory).values()
    if not run.ooms:
        return f"{label} | **no failure recorded** {failed['error']:.80} | | | | | | |"
    oom = run.ooms[0]
    inside = sorted(oom.request_ledger, key=lambda row: -row.bytes)[:2]
    holding = "; ".join(f"{row.layer or row.category} {format_bytes(row.bytes)}" for row in inside)
    enough = next((fix for fix in oom.fixes if fix.enough), None)
    every = [
        (fix.kind, fix.enough, fix.batch_size, fix.capacity_bytes, fix.code) for fix in oom.fixes
    ]
    print(f"<!-- {directory.name}: {oom.verdict} {oom.reason} {every} -->", flush=True)
    cells = (
        f"{oom.verdict} | {format_bytes(oom.requested_bytes)} ({oom.requested_bytes}) | "
        f"{oom.layer or holding or '–'}"
    )
    printed = re.search(r"^ *batch_size = (\d+)", failed["printed"], re.MULTILINE)
    last = " | | |"
    if printed:
        last = (
            f" | {printed[1]} | "
            f"{passed({**common, 'batch': int(printed[1]), 'capacity': FAILING[name]})} |"
        )
    if enough is None:
        return f"{label} | {cells} | none |{last}"
    change: dict[str, Any] = {"batch": enough.batch_size or large, "capacity": FAILING[name]}
    if enough.kind == "limit" and enough.capacity_bytes:
        change["capacity"] = -(-enough.capacity_bytes // MIB)
    accumulated = re.search(r"gradient_accumulation_steps=(\d+)", enough.code or "")
    if accumulated:
        change |= {
            "accumulation": int(accumulated[1]),
            "batch": enough.batch_size or large // int(accumulated[1]),
        }
    return f"{label} | {cells} | {enough.change} | {passed({**common, **change})}{last}"


def passed(arguments: dict[str, Any]) -> str:
    after = trained(**arguments)
    if after["error"] or after["steps"] < STEPS:
        return f"**fails** {after['error']:.60}"
    return f"passes, {after['peak'] / 1e6:,.0f} MB"


def plans(names: list[str], jobs: int) -> str:
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        rows = list(pool.map(planned, names))
    titles = "model | batch | peak, MB | budget | change | predicted | measured | error | seconds"
    return "\n".join([f"| {titles} |", "|---|---:|---:|---:|---|---:|---:|---:|---:|", *rows])


def planned(name: str) -> str:
    """The row of a plan, and of the training that follows it."""
    batch = PLANNED[name]
    plain = trained(name=name, batch=batch)
    label = f"| {name} | {batch}"
    if not plain["peak"]:
        return f"{label} | failed | | | | | | |"
    budget = int(SHARE * plain["peak"])
    plan = trained(name=name, batch=batch, budget=budget)
    cells = f"{label} | {plain['peak'] / 1e6:,.0f} | {budget / 1e6:,.0f}"
    if not plan.get("fits"):
        return (
            f"{cells} | {' '.join(plan.get('sentences') or [plan.get('error', '')[-300:]])} | "
            "| | | |"
        )
    # The models are compiled by default: the change of XLA is graph mode.
    change = {
        "accumulation": plan["accumulation"],
        "segments": plan["segments"],
        "graph": plan["kind"] == "xla",
    }
    after = trained(name=name, batch=plan["batch_size"] or batch, examples=batch * STEPS, **change)
    if not after["peak"]:
        return f"{cells} | {plan['option']} | {plan['peak_bytes'] / 1e6:,.0f} | **fails** | | |"
    error = f"{100 * (plan['peak_bytes'] / after['peak'] - 1):+.1f} %"
    within = (
        f"{after['peak'] / 1e6:,.0f}"
        if after["peak"] <= budget
        else f"**{after['peak'] / 1e6:,.0f}**"
    )
    figures = f"{plan['peak_bytes'] / 1e6:,.0f} | {within} | {error} | {plan['seconds']:.0f}"
    return f"{cells} | {plan['option']} | {figures} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["failures", "plans"])
    parser.add_argument("--runs", default=tempfile.mkdtemp())
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--only", nargs="*", choices=SMALLER)
    parser.add_argument("--mode", nargs="*", choices=MODES, default=MODES, help="of failures")
    options = parser.parse_args()
    if options.what == "failures":
        print(
            failures(
                pathlib.Path(options.runs),
                options.only or list(FAILING),
                options.mode,
                options.jobs,
            )
        )
    else:
        print(plans(options.only or list(PLANNED), options.jobs))


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(**json.loads(sys.argv[2]))
    else:
        main()
