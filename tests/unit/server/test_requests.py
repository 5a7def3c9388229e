"""Parameters of requests: invalid ones are refused with a sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.datastructures import MultiDict

from tb_memplugin.errors import RequestError
from tb_memplugin.server import requests


def test_known_parameters_given_once_are_taken() -> None:
    assert requests.parse(MultiDict([("run", "a"), ("step", "5")]), ("run", "step", "phase")) == {
        "run": "a",
        "step": "5",
    }


def test_unknown_and_repeated_parameters_are_refused() -> None:
    with pytest.raises(RequestError, match=r"unknown parameter 'stpe'; accepted: run, step"):
        requests.parse(MultiDict([("stpe", "5")]), ("run", "step"))
    with pytest.raises(RequestError, match="'run' is given 2 times"):
        requests.parse(MultiDict([("run", "a"), ("run", "a")]), ("run",))
    with pytest.raises(RequestError, match="accepted: none"):
        requests.parse(MultiDict([("x", "")]), ())


def test_a_name_is_required_and_limited_in_length() -> None:
    assert requests.text_of({"run": "a/b"}, "run") == "a/b"
    assert requests.optional_text_of({}, "run") is None
    for values in ({}, {"run": ""}, {"run": "x" * 5000}):
        with pytest.raises(RequestError, match="'run'"):
            requests.text_of(values, "run")


@pytest.mark.parametrize(
    "value", ["", "-1", "+1", " 1", "1.0", "1e3", "１", "0x1", "1_0", "nan", "9" * 17, "9007199254740992", "None"]
)
def test_invalid_steps_are_refused(value: str) -> None:
    with pytest.raises(RequestError, match="an integer"):
        requests.step({"step": value}, "step")


@given(st.integers(0, 2**53 - 1))
def test_steps_are_read(step: int) -> None:
    assert requests.step({"step": str(step)}, "step") == step


def test_a_required_step_must_be_there() -> None:
    with pytest.raises(RequestError, match="missing"):
        requests.step({}, "step")


def test_a_range_of_steps_is_in_order() -> None:
    assert requests.step_limits({"first_step": "3", "last_step": "3"}) == (3, 3)
    assert requests.step_limits({}) == (None, None)
    with pytest.raises(RequestError, match="after last_step"):
        requests.step_limits({"first_step": "4", "last_step": "3"})


def test_points_are_within_their_range() -> None:
    assert [requests.points(values) for values in ({}, {"points": "10"}, {"points": "10000"})] == [1500, 10, 10_000]
    for value in ("9", "10001", "x"):
        with pytest.raises(RequestError, match="from 10 to 10000"):
            requests.points({"points": value})


def test_a_phase_is_one_of_the_three() -> None:
    assert requests.phase({}) == "train" and requests.phase({"phase": "predict"}) == "predict"
    with pytest.raises(RequestError, match="train, validation, predict"):
        requests.phase({"phase": "test"})


@given(st.text())
def test_any_text_gives_a_value_or_a_sentence(value: str) -> None:
    for parse in (requests.step_limits, requests.points, requests.phase):
        try:
            parse({"first_step": value, "points": value, "phase": value})
        except RequestError as error:
            assert 0 < len(str(error)) < 400 and "\n" not in str(error)
