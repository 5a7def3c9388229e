"""The conditions of a question as they are typed."""

import dataclasses
import re
from typing import Any

import numpy as np
import pytest
from reading_cases import MIB

import tb_memplugin
from tb_memplugin.errors import RequestError
from tb_memplugin.fit import capacity_bytes, checked_conditions
from tb_memplugin.schema import MISSING, Counters, Run

GIB = 1 << 30


@pytest.mark.parametrize(
    ("typed", "size"),
    [
        ("8 GiB", 8 * GIB),
        (" 8.5gib ", 8 * GIB + GIB // 2),
        ("512MiB", 512 * MIB),
        ("900 B", 900),
        ("512 KiB", 512 << 10),
        (8, 8),  # in Python, numbers are bytes
        (np.int64(16 * GIB), 16 * GIB),
    ],
)
def test_a_capacity_has_a_unit_or_is_a_number_of_bytes(typed: int | str, size: int) -> None:
    assert capacity_bytes(typed) == size


@pytest.mark.parametrize(
    "typed", ["", "much", "-8", "0", "24", "1048576", "1048577", "2PiB", "8 GiB of memory", 0, -8, 8.5, True]
)
def test_other_texts_are_refused(typed: Any) -> None:
    received = re.escape(repr(typed))
    with pytest.raises(
        RequestError, match=f"a capacity is a size with its unit, such as 24GiB, .* Received: {received}"
    ):
        capacity_bytes(typed)


@pytest.mark.parametrize(
    ("globs", "text"),
    [("a/*", "a/*"), (["a/*"], "a/*"), (("a/*", "b,c"), "a/*,b,c"), ({"a"}, "a"), ([], None), ("", None), (None, None)],
)
def test_globs_are_a_text_or_a_list_of_texts(globs: Any, text: str | None) -> None:
    assert checked_conditions(freeze=globs).freeze == checked_conditions(unfreeze=globs).unfreeze == text


@pytest.mark.parametrize(
    ("conditions", "sentence"),
    [
        ({"freeze": 3}, "freeze is a glob for paths of layers, or a list of globs. Received: 3"),
        ({"unfreeze": ["a", 3]}, "unfreeze is a glob for paths of layers, or a list of globs. Received: ['a', 3]"),
        ({"optimizer": ["adam"]}, "optimizer is one of sgd, "),
        ({"precision": 16}, "precision is one of float32, "),
        ({"batch_size": "64"}, "a batch size is an integer from 1 to 16,777,216. Received: '64'"),
        ({"batch_size": 2.5}, "a batch size is an integer"),
    ],
)
def test_what_is_of_another_type_is_named(conditions: Any, sentence: str) -> None:
    with pytest.raises(RequestError) as raised:
        checked_conditions(**conditions)
    assert str(raised.value).startswith(sentence) and raised.value.parameter == next(iter(conditions))


def test_steps_that_were_each_traced_again_are_the_reason(run: Run) -> None:
    # GIVEN a run in which the program changed at each traced step
    anew = dataclasses.replace(run, requests=tuple(dataclasses.replace(one, first=True) for one in run.requests))
    reason = "Unknown: each traced training step is the first one after a change of the program, and so not typical."
    assert tb_memplugin.what_if(anew).prediction.assumptions == (reason,)
    unknown = np.full(4, MISSING)
    names, details = ("step", "step", "loss", "step"), (None, "argument `x` is another object", None, None)
    counters = Counters(np.arange(4), ("traces",) * 4, names, np.asarray([1, 2, 1, 7]), unknown, details)
    counted = dataclasses.replace(anew, counters=(counters,))
    sentence = f"{reason} `step` was traced 7 times, the last time because argument `x` is another object."
    assert tb_memplugin.what_if(counted).prediction.assumptions == (sentence,)
    assert tb_memplugin.plan(counted, budget="1GiB").sentences == (sentence,)
    assert "replay" not in str(tb_memplugin.what_if(counted)) and "replay" in str(tb_memplugin.what_if(run))
    nothing = tb_memplugin.what_if(dataclasses.replace(run, requests=(), counters=(counters,))).prediction.assumptions
    assert nothing[0].startswith("Unknown: the run has no traced training step with its requests.")
