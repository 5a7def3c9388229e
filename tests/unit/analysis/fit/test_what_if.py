"""The conditions of a question as they are typed."""

import re
from typing import Any

import numpy as np
import pytest
from reading_cases import MIB

from tb_memplugin.analysis.fit.what_if import capacity_bytes, checked_conditions
from tb_memplugin.errors import RequestError

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
