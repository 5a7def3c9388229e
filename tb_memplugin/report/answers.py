"""The answers that a report holds: asked of the routes' own handlers, packed, and bounded in number and size."""

import base64
import dataclasses
import gzip
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tb_memplugin.errors import NotFoundError
from tb_memplugin.metadata import run_name
from tb_memplugin.server.handlers import Handlers
from tb_memplugin.server.responses import COLUMNS_TYPE, data_body
from tb_memplugin.server.routes import DATA_ROUTES
from tb_memplugin.store.reader import Reader
from tb_memplugin.store.source import Listing, Source, TagContent

MAX_ANSWER_BYTES = 64 << 20
"""Longest answer, before it is packed, that is taken in: the page that opens it unpacks it whole."""


@dataclasses.dataclass(frozen=True)
class Question:
    """What the page may ask: a route and its parameters, as in the address of a request."""

    route: str
    parameters: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the server would say.

    Attributes:
        question: To what.
        status: Of HTTP: 200, or 404 with a sentence.
        content_type: How the body is to be read.
        packed: The body, the same bytes, as gzip in base64.
    """

    question: Question
    status: int
    content_type: str
    packed: str

    @property
    def body(self) -> bytes:
        """What the server would send."""
        return gzip.decompress(base64.b64decode(self.packed))

    def fields(self) -> dict[str, Any]:
        """The JSON of the answer; of columns, their head."""
        body = self.body
        if self.content_type == COLUMNS_TYPE:
            (length,) = struct.unpack_from("<I", body)
            body = body[4 : 4 + length]
        found: dict[str, Any] = json.loads(body)
        return found


@dataclasses.dataclass
class Collected:
    """The answers so far, and the sentences on what is left out of them.

    Attributes:
        reader, source: Who reads, and what.
        room: Characters of packed answers that still fit.
        dropped: How many answers to a route did not fit.
    """

    reader: Reader
    source: Source
    room: int
    answers: list[Answer] = dataclasses.field(default_factory=list)
    refusals: list[tuple[Question, str]] = dataclasses.field(default_factory=list)
    dropped: dict[str, int] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._handlers = Handlers(self.reader)

    def take(self, route: str, **parameters: object) -> Answer | None:
        """Asks and keeps the answer; None, and a refusal, if it does not fit."""
        question = Question(route, {name: str(value) for name, value in parameters.items() if value is not None})
        status = 200
        try:
            body, content_type = data_body(DATA_ROUTES[route][1](self._handlers, self.source, question.parameters))
        except NotFoundError as error:
            status, body, content_type = 404, str(error).encode("utf-8", "replace"), "text/plain"
        packed = base64.b64encode(gzip.compress(body, 6, mtime=0)).decode() if len(body) <= MAX_ANSWER_BYTES else None
        if packed is None or len(packed) > self.room:
            self.dropped[route] = self.dropped.get(route, 0) + 1
            self.refuse(question, "its size is limited, and this had no room in it")
            return None
        self.room -= len(packed)
        answer = Answer(question, status, content_type, packed)
        self.answers.append(answer)
        return answer

    def refuse(self, question: Question, why: str) -> None:
        """Notes that the page must say why it has no answer to `question`."""
        self.refusals.append((question, f"Not available in a report, because {why}."))


class ChosenRuns:
    """A source that knows some runs only, and those as they were when they were first listed: one moment, one report.

    Args:
        source: Where they lie.
        names: The runs.
    """

    def __init__(self, source: Source, names: Sequence[str]) -> None:
        self._source, self._names = source, frozenset(names)
        self._listing: Listing | None = None

    def listing(self) -> Listing:
        """See `Source.listing`."""
        if self._listing is None:
            everything = self._source.listing()
            self._listing = {run: tags for run, tags in everything.items() if run_name(run)[0] in self._names}
        return self._listing

    def read(self, wanted: Mapping[str, Sequence[str]]) -> Iterator[TagContent]:
        """See `Source.read`."""
        return self._source.read(wanted)

    def damage(self) -> Mapping[str, tuple[str, ...]]:
        """See `Source.damage`."""
        return {run: told for run, told in self._source.damage().items() if run_name(run)[0] in self._names}
