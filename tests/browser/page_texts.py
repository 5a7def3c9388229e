"""The quantities of `quantities` in the page's sentences."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from quantities import Sighting

SIZE = r"(?P<size>-?[\d.]+ [KMGTP]?i?B)"
SENTENCES = (
    (rf"The peak of {SIZE} at step (?P<n>\d+) consists", "bytes in use at the peak of step {n}"),
    (rf"Frozen weights take {SIZE} \([^)]* at step (?P<n>\d+)\)", "weights, frozen at the peak of step {n}"),
    (rf"At step (?P<n>\d+), (?P<s>frozen|trainable) layers use {SIZE}", "{s} layers at the peak of step {n}"),
    (rf"TensorFlow's pool holds {SIZE}", "pool at the peak of step {traced}"),
    (rf"TensorFlow's pool holds [^:]*: {SIZE} in use", "bytes in use at the peak of step {traced}"),
    (rf"TensorFlow's pool holds [^.]*in use, {SIZE} free", "free bytes at the peak of step {traced}"),
    (rf"At the (?P<i>peak|end) of step (?P<n>\d+), {SIZE} of the pool are free", "free bytes at the {i} of step {n}"),
    (
        rf"At the (?P<i>peak|end) of step (?P<n>\d+), [^.]*\.?[^.]*; the largest free chunk is {SIZE}",
        "largest free chunk at the {i} of step {n}",
    ),
    (rf"OOM at step \d+: {SIZE} requested", "request at the failure"),
    (rf"Free memory is fragmented: {SIZE} requested", "request at the failure"),
    (rf"Not enough free memory: {SIZE} requested", "request at the failure"),
    (rf"requested, {SIZE} free", "free bytes at the failure"),
    (rf"requested; {SIZE} free in the pool", "free bytes at the failure"),
    (rf"free in the pool, the largest chunk {SIZE}", "largest free chunk at the failure"),
    (rf"Fits: [\d.]+(?: [KMGTP]?i?B)? of {SIZE}", "capacity"),
    (rf"Fits: .*, {SIZE} headroom", "headroom at step {evidence}"),
)


TABLE = re.compile(
    r"From step (?P<n>\d+): (?P<f>\d+) frozen layers? with (?P<fs>\S+ \S+) of weights, "
    r"(?P<t>\d+) trainable layers? with (?P<ts>\S+ [KMGTP]?i?B)"
)


def page_text_sightings(text: str, scope: Mapping[str, Any], where: str) -> Iterator[Sighting]:
    """The rounded sizes and the counts in the sentences of a view."""
    text = text.replace("\u00a0", " ")
    for pattern, quantity in SENTENCES:
        for found in re.finditer(pattern, text):
            name = quantity.format_map({**scope, **found.groupdict()})
            yield Sighting(f"{scope['run']}: {name}", found["size"], f"{where}, text")
    for found in TABLE.finditer(text):
        for side, letter in (("frozen", "f"), ("trainable", "t")):
            yield Sighting(
                f"{scope['run']}: {side} layers from step {found['n']}", int(found[letter]), f"{where}, text"
            )
            yield Sighting(
                f"{scope['run']}: {side} weights from step {found['n']}", found[f"{letter}s"], f"{where}, text"
            )
