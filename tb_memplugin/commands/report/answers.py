"""Responses stored in a report: computed by the routes' handlers, compressed, and limited in number and size."""

import base64
import dataclasses
import gzip
import json
import struct
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.events.frames.metadata import run_name
from tb_memplugin.reader.files.source import Listing, NewestFrames, Source, TagContent
from tb_memplugin.reader.run_reader import Reader
from tb_memplugin.server.handlers import Handlers
from tb_memplugin.server.responses import COLUMNS_TYPE, data_body
from tb_memplugin.server.routes import DATA_ROUTES

MAX_ANSWER_BYTES = 64 << 20
"""Largest response before compression: the page decompresses it as a whole."""


@dataclasses.dataclass(frozen=True)
class Question:
    """A request of the page: route and parameters, as in its URL."""

    route: str
    parameters: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class StoredAnswer:
    """The server's response to a request.

    Attributes:
        question: The request.
        status: HTTP status: 200, or 404 with a sentence.
        content_type: Content type of the body.
        packed: The body as base64 of gzip.
    """

    question: Question
    status: int
    content_type: str
    packed: str

    @property
    def body(self) -> bytes:
        """The body of the server's response."""
        return gzip.decompress(base64.b64decode(self.packed))

    def fields(self) -> dict[str, Any]:
        """The JSON of the response; for columns, that of their head."""
        body = self.body
        if self.content_type == COLUMNS_TYPE:
            (length,) = struct.unpack_from("<I", body)
            body = body[4 : 4 + length]
        parsed: dict[str, Any] = json.loads(body)
        return parsed


@dataclasses.dataclass
class CollectedAnswers:
    """The responses so far, and sentences on responses left out.

    Attributes:
        reader, source: The reader and the source of the runs.
        room: Characters of packed responses that still fit.
        answers: Responses in order of their requests.
        refusals: Requests that the page answers with a sentence.
        dropped: Number of responses that did not fit, by route.
    """

    reader: Reader
    source: Source
    room: int
    answers: list[StoredAnswer] = dataclasses.field(default_factory=list)
    refusals: list[tuple[Question, str]] = dataclasses.field(default_factory=list)
    dropped: dict[str, int] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._handlers = Handlers(self.reader)

    def take(self, route: str, **parameters: object) -> StoredAnswer | None:
        """Compute and store a response; if it does not fit, store a refusal and return None."""
        question = Question(route, {name: str(value) for name, value in parameters.items() if value is not None})
        status = 200
        try:
            body, content_type = data_body(DATA_ROUTES[route][1](self._handlers, self.source, question.parameters))
        except RequestError as error:  # a name that no request may have costs only its own answers
            self.refuse(question, str(error))
            return None
        except NotFoundError as error:
            status, body, content_type = 404, str(error).encode("utf-8", "replace"), "text/plain"
        packed = base64.b64encode(gzip.compress(body, 6, mtime=0)).decode() if len(body) <= MAX_ANSWER_BYTES else None
        if packed is None or len(packed) > self.room:
            self.dropped[route] = self.dropped.get(route, 0) + 1
            self.refuse(question, "the report reached its size limit")
            return None
        self.room -= len(packed)
        answer = StoredAnswer(question, status, content_type, packed)
        self.answers.append(answer)
        return answer

    def refuse(self, question: Question, why: str) -> None:
        """Store a reason that the page shows for a missing response."""
        self.refusals.append((question, f"Not in this report: {why}."))


class ChosenRuns:
    """A source restricted to some runs. They are listed once, so that a report is consistent.

    Args:
        source: The source of all runs.
        names: Runs to include.
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
        return {run: damage for run, damage in self._source.damage().items() if run_name(run)[0] in self._names}

    def event_runs(self) -> Mapping[str, Hashable]:
        """See `Source.event_runs`; as they were listed."""
        return {run: tuple(tags.items()) for run, tags in self.listing().items()}

    def listing_of(self, event_runs: Collection[str]) -> Listing:
        """See `Source.listing_of`."""
        return {run: tags for run, tags in self.listing().items() if run in event_runs}

    def newest(self, event_runs: Collection[str], stream: str) -> Iterator[NewestFrames]:
        """See `Source.newest`."""
        return self._source.newest(event_runs, stream)
