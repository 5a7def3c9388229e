"""Patterns mean what `re.search` says, and none takes long."""

import itertools
import random
import re
import time

import pytest

from tb_memplugin.prediction.pattern_syntax import PatternError
from tb_memplugin.prediction.patterns import LayerPattern

PATHS = (
    "",
    "vgg/block5_conv1",
    "vgg/block1_conv2",
    "head",
    "model/layer_12/attention/query",
    "a{2}b",
    "a{}b",
    "aab",
    "x]y-z^",
    "Ünïcode/层",
    "tab\tand space",
)
PATTERNS = (
    "block[45]",
    "^vgg/",
    "conv1$",
    "head|query",
    "^(?:head|vgg/block1.*)$",
    "(?P<name>layer)_\\d{2}",
    "b{0}lock",
    "a{1,2}b",
    "a{,2}b",
    "a{2,}b",
    "a{}b",
    "a{2}b",
    "a\\{2}b",
    "a{x",
    "",
    "()",
    "(|a)b",
    "(a*)*b",
    "(a|a)*$",
    "\\bquery\\b",
    "\\Bead",
    "[]x]",
    "[^]x]",
    "[\\]y]",
    "\\x61\\u0061b",
    "\\s",
    "\\W",
    "\\Avgg",
    "1\\Z",
    "层",
    "(?:conv){1}[12]??$",
    "a.b",
    ".*.*.*/",
    "x\\]y\\-",
    "(" * 99 + "a" + ")" * 99,
    "(){50}a",
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_what_re_says(pattern: str) -> None:
    compiled = LayerPattern(pattern)
    for path in PATHS:
        assert compiled.found_in(path) == (re.search(pattern, path) is not None), path


def test_random_patterns_mean_what_re_says() -> None:
    chooser = random.Random(7)
    words = ["".join(word) for size in range(5) for word in itertools.product("ab", repeat=size)]
    compared = 0
    while compared < 400:
        pattern = "".join(
            chooser.choice(["a", "b", ".", "[ab]", "(", ")", "|", "*", "+?", "?", "{2}", "^", "$"]) for _ in range(8)
        )
        try:
            wanted = re.compile(pattern)
        except re.error:
            continue
        compared += 1
        compiled = LayerPattern(pattern)
        assert [compiled.found_in(word) for word in words] == [wanted.search(word) is not None for word in words], (
            pattern
        )


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(.|.)" * 40 + "!", ".*" * 60 + "!", "(a?){60}a{60}!"])
def test_no_pattern_takes_long(pattern: str) -> None:
    began = time.perf_counter()
    assert not LayerPattern(pattern).found_in("a" * 200)
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ("(", "is not a regular expression"),
        ("a**", "is not a regular expression"),
        ("(?=a)b", "not supported"),
        ("(?i)a", "not supported"),
        ("(a)\\1", "not supported"),
        ("(?P<n>a)(?P=n)", "not supported"),
        ("(?<!a)b", "not supported"),
        ("x{1000}", "repeats too much"),
        ("((x{99}){99}){99}", "repeats too much"),
        ("(){4000000000}", "repeats too much"),
        ("((((){600}){600}){600}){600}", "repeats too much"),
        ("(){0,4000000000}", "repeats too much"),
        ("x{99999999999}", "is not a regular expression"),
        ("(" * 100 + ")" * 99, "is not a regular expression"),
    ],
)
def test_other_patterns_are_refused(pattern: str, sentence: str) -> None:
    with pytest.raises(PatternError, match=sentence):
        LayerPattern(pattern)
