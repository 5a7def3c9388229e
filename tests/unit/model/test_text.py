"""Suggestions for names that do not exist."""

import pytest

from tb_memplugin.model.text import did_you_mean, some, unknown_name


@pytest.mark.parametrize(
    ("name", "meant"),
    [("small", "small"), ("smal", "small"), ("SMALL", "small"), ("samll", "small"), ("other", None), ("", None)],
)
def test_the_most_similar_name_is_suggested(name: str, meant: str | None) -> None:
    expected = None if meant is None else f"did you mean {meant!r}?"
    assert did_you_mean(name, ["finished", "small", "large"]) == expected


def test_many_or_long_names_are_not_all_listed() -> None:
    assert some([]) == "none" and some([1, "b"]) == "1, b"
    names = [f"run {number:02}" for number in range(99)]
    assert unknown_name("no run", "x" * 5_000, names) == (
        f"no run '{'x' * 80}'; available: {', '.join(names[:10])} and 89 more"
    )
    assert unknown_name("no run", "run 98", ["run 97" + "y" * 500]).count("y") == 74
