"""``tb-memplugin report``: the tab's page and its data in one standalone HTML file.

The data are the selected runs and the responses of the routes' handlers, limited in number and
size."""

import argparse
import base64
import dataclasses
import gzip
import hashlib
import html
import itertools
import json
import os
import re
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from tb_memplugin.cli.parser import CommandParser
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.progress import Progress
from tb_memplugin.schema import (
    MemoryMap,
    Snapshot,
    Timeline,
    clean,
    first_of,
    format_bytes,
    unknown_name,
    with_layers_of,
)
from tb_memplugin.server import (
    COLUMNS_TYPE,
    DATA_ROUTES,
    Lookup,
    RunList,
    StaticFiles,
    data_body,
)
from tb_memplugin.storage import BASIC, MAPS, SNAPSHOTS, TIMELINES, Reader, Stream, no_records
from tb_memplugin.storage.files import FileSource, Listing, Source
from tb_memplugin.storage.frames import run_name
from tb_memplugin.version import __version__

FORMAT = 1
# id of the element with the data; if present, the page does not query a server
DATA_ID = "tb-memplugin-report"
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
_ENDS = re.compile(r"<(?=/script|!--)", re.IGNORECASE | re.ASCII)
"""End tags and comment starts, which occur only in strings, templates and regular expressions:
``\\x3C`` is the same there."""
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="tb_memplugin {version}">
<title>{title}</title>
<link rel="icon" href="data:,">
<script type="application/json" id="{data_id}">{data}</script>
</head>
<body>
<noscript>This report needs a browser with JavaScript enabled.</noscript>
<script type="module">{script}</script>
</body>
</html>
"""
MAX_RUNS = 8  # most runs in a report; if none are named, the newest ones
NAMED_RUNS = 12  # most runs left out that a sentence names
MAX_DATA_BYTES = 24 << 20  # limit of packed responses in characters: fits into an email
# largest response before compression: the page decompresses it as a whole
MAX_ANSWER_BYTES = 64 << 20
# of step series: all steps of runs with up to twice as many, since zooming cannot request more
POINTS = 5000
ACTIVATION_POINTS = 600
# per device of a run: the last ones, and that of the highest peak
MAX_SNAPSHOTS, MAX_MAPS, MAX_TIMELINES = 200, 10, 6
MAX_TABLES, MAX_SESSIONS, MAX_OOMS = 50, 8, 8  # the last ones of a run
MAX_DEVICES = 16  # per run: the first ones


def add_arguments(parser: CommandParser) -> None:
    parser.describe(
        "Writes the Memory tab with the data of the selected runs into one HTML file that opens "
        "without TensorBoard or network.",
        examples=(
            "tb-memplugin report runs -o memory.html",
            "tb-memplugin report runs -o memory.html --run exp1 --run exp2",
        ),
    )
    parser.add_logdir()
    output = "output file; overwritten if it exists"
    parser.add_argument("-o", "--output", metavar="FILE.html", required=True, help=output)
    run = "run to include, up to 8 times (default: newest eight)"
    parser.option("--run R", run, action="append", default=[])
    parser.set_defaults(command=_report)


class Question(NamedTuple):
    """A request of the page: route and parameters, as in its URL."""

    route: str
    parameters: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class StoredAnswer:
    """The server's response, with HTTP status 200, or 404 and a sentence; the body as base64 of
    gzip."""

    question: Question
    status: int
    content_type: str
    packed: str

    def fields(self) -> Any:
        """The JSON of the response; for columns, that of their head."""
        body = gzip.decompress(base64.b64decode(self.packed))
        is_json = self.content_type != COLUMNS_TYPE
        return json.loads(body if is_json else body[4 : 4 + struct.unpack_from("<I", body)[0]])


@dataclasses.dataclass(frozen=True)
class Contents:
    """Responses in order of their requests, the first that of ``runs``; requests that the page
    answers with a sentence; sentences on data left out."""

    runs: tuple[str, ...]
    answers: tuple[StoredAnswer, ...]
    refusals: tuple[tuple[Question, str], ...]
    absent: tuple[str, ...]


class _Collected:
    def __init__(self, source: Source, room: int) -> None:
        self.reader = Reader()
        self.source = source
        self.room = room  # characters of packed responses that still fit
        self.answers: list[StoredAnswer] = []
        self.refusals: list[tuple[Question, str]] = []
        self.dropped: Counter[str] = Counter()  # responses that did not fit, by route
        self.absent: list[str] = []  # sentences on data left out
        self._lookup = Lookup(self.reader, source, RunList())

    def take(self, route: str, **parameters: object) -> StoredAnswer | None:
        """Store a response; if it does not fit, store a refusal and return None."""
        question, status = _question(route, parameters), 200
        try:
            answer = DATA_ROUTES[route].answer(self._lookup, question.parameters)
            body, content_type = data_body(answer)
        except RequestError as error:  # a name that no request may have costs only its own answers
            self.refuse(route, str(error), **parameters)
            return None
        except NotFoundError as error:
            status, body, content_type = 404, str(error).encode("utf-8", "replace"), "text/plain"
        fits = len(body) <= MAX_ANSWER_BYTES
        packed = base64.b64encode(gzip.compress(body, 6, mtime=0)).decode() if fits else ""
        if not fits or len(packed) > self.room:
            self.dropped[route] += 1
            self.refuse(route, "the report reached its size limit", **parameters)
            return None
        self.room -= len(packed)
        stored = StoredAnswer(question, status, content_type, packed)
        self.answers.append(stored)
        return stored

    def take_if(self, is_kept: bool, why: str, route: str, **parameters: object) -> None:
        """Store a response that the report keeps, else a refusal that says why it does not."""
        if is_kept:
            self.take(route, **parameters)
        else:
            self.refuse(route, why, **parameters)

    def refuse(self, route: str, why: str, **parameters: object) -> None:
        self.refusals.append((_question(route, parameters), f"Not in this report: {why}."))


def _question(route: str, parameters: Mapping[str, object]) -> Question:
    """A request with the parameters that are not None."""
    given = {name: str(value) for name, value in parameters.items() if value is not None}
    return Question(route, given)


class _ChosenRuns(FileSource):
    """The source of a report: its runs are listed once, so that it is consistent."""

    def __init__(self, logdir: str | os.PathLike[str]) -> None:
        super().__init__(logdir)
        self._names: Sequence[str] | None = None
        self._listed = super().listing()

    def choose(self, names: Sequence[str]) -> None:
        self._names = names
        self._listed = self._chosen(self._listed)

    def listing(self) -> Listing:
        return self._listed

    def damage(self) -> Mapping[str, tuple[str, ...]]:
        return self._chosen(super().damage())

    def _chosen(self, by_run: Mapping[str, Any]) -> dict[str, Any]:
        chosen = self._names
        return {
            run: of for run, of in by_run.items() if chosen is None or run_name(run)[0] in chosen
        }


def _report(options: argparse.Namespace) -> int:
    contents, size = write_report(options.logdir, options.output, options.run)
    print(f"{clean(options.output)}: {format_bytes(size)}, with {clean(', '.join(contents.runs))}")
    for sentence in contents.absent:
        print(clean(sentence))
    return 0


def write_report(logdir: str, path: str, names: Sequence[str] = ()) -> tuple[Contents, int]:
    """Write a report; return its contents and its size in bytes."""
    _check_output(path)
    contents = collect(logdir, names)
    script, _ = StaticFiles().read("index.js")
    page = render(contents, script.decode("utf-8")).encode("utf-8", "replace")
    unfinished = f"{path}.unfinished"
    try:
        _check_output(unfinished)
        # Not through a link that appears after the check.
        with open(
            os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_LINKS, 0o666), "wb"
        ) as file:
            file.write(page)
        os.replace(unfinished, path)
    except OSError as error:
        raise NotFoundError(f"the report cannot be written to {path}: {error.strerror}") from None
    return contents, len(page)


def _check_output(path: str) -> None:
    """Refuse what is no regular file: a report would replace a device or a link, not write to
    it."""
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):
        raise RequestError(
            f"the report cannot be written to {path}: it is a link, a device or a directory; "
            "pass the name of a file"
        )


def render(contents: Contents, script: str) -> str:
    """The page, with `script` as its only code and `contents` as data."""
    code = _ENDS.sub(r"\\x3C", script)
    data = json.dumps(report_data(contents), separators=(",", ":"), allow_nan=False)
    digest = base64.b64encode(hashlib.sha256(code.encode("utf-8")).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src "
        "data: blob:; connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=html.escape(policy, quote=True).replace("&#x27;", "'"),
        version=html.escape(__version__),
        title=html.escape(f"Memory of {', '.join(contents.runs)}"),
        data_id=DATA_ID,
        data=data.replace("<", "\\u003c"),  # so that it contains no markup
        script=code,
    )


def report_data(contents: Contents) -> dict[str, Any]:
    """The data in the page of a report, as `frontend/src/api/embedded.ts` reads it."""
    return {
        "format": FORMAT,
        "absent": contents.absent,
        "answers": [
            {**one.question._asdict(), "status": one.status, "data": one.packed}
            for one in contents.answers
        ],
        "refusals": [
            {**question._asdict(), "why": sentence} for question, sentence in contents.refusals
        ],
    }


def collect(
    logdir: str | os.PathLike[str], names: Sequence[str] = (), max_data_bytes: int = MAX_DATA_BYTES
) -> Contents:
    """Collect a report on the runs `names` under `logdir`, or on the newest ones: `NotFoundError`
    without one of them, `RequestError` if there are too many, or their list exceeds
    `max_data_bytes`."""
    source = _ChosenRuns(logdir)
    catalog = Reader().catalog(source)
    known = {tags.name: tags for tags in catalog.values()}
    if not known:
        raise no_records(os.fspath(logdir))
    for name in names:
        if name not in known:
            raise NotFoundError(unknown_name("no run", name, known))
    # Identifiers of sessions sort by start time.
    newest = sorted(
        known, key=lambda name: max((entry[2].session for entry in known[name].tags), default="")
    )
    chosen = list(dict.fromkeys(names)) or newest[-MAX_RUNS:]
    if len(chosen) > MAX_RUNS:
        raise RequestError(
            f"a report contains at most {MAX_RUNS} runs. Received: {len(chosen)} runs"
        )
    source.choose(chosen)
    collected = _Collected(source, max_data_bytes)
    listed = collected.take("runs")
    if listed is None:
        raise RequestError(
            f"the list of runs exceeds the report's limit of {max_data_bytes} bytes; pass fewer "
            "--run"
        )
    runs = listed.fields()["runs"]
    absent = collected.absent
    others = [name for name in catalog if name not in chosen]
    if others and not names:
        verb = "is" if len(others) == 1 else "are"
        absent.append(
            f"{first_of(others, NAMED_RUNS)} {verb} not in this report: without --run it contains "
            f"the newest {MAX_RUNS} runs."
        )
    with Progress("report", len(PARTS) * len(runs)) as progress:
        for part, info in itertools.product(PARTS, runs):
            progress.part(clean(info["run"]))
            part(collected, info)
    limit = f"it reached its limit of {format_bytes(max_data_bytes)} of data"
    for route, count in collected.dropped.items():
        absent.append(f"{count} responses of route “{route}” are not in this report: {limit}.")
    return Contents(
        tuple(info["run"] for info in runs),
        tuple(collected.answers),
        tuple(collected.refusals),
        tuple(absent),
    )


# The parts of a report on a run, given by its entry in the response of ``runs``: each takes its
# responses, and adds sentences on data left out.


def _devices_of(info: Mapping[str, Any]) -> list[str]:
    return [device["device"] for device in info["devices"][:MAX_DEVICES]]


def _each(*routes: str, devices: bool = False, phases: bool = False) -> "Part":
    """A part of the responses of some routes, for each device or phase; without a device, that of a
    phase says why."""

    def part(collected: _Collected, info: Mapping[str, Any]) -> None:
        of_devices: list[str | None] = [*_devices_of(info)] if devices else [None]
        of_phases = info["phases"] or ["train"] if phases else [None]
        for device, phase, route in itertools.product(
            of_devices or [None] * phases, of_phases, routes
        ):
            collected.take(route, run=info["run"], device=device, phase=phase)

    return part


def _overviews(collected: _Collected, info: Mapping[str, Any]) -> None:
    run, more = info["run"], len(info["devices"]) - MAX_DEVICES
    if more > 0:
        collected.absent.append(
            f"{more} devices of {run} are not in this report: it contains the first {MAX_DEVICES}."
        )
    points = {"overview": POINTS, "ledger_totals": None, "pool": POINTS, "host_memory": POINTS}
    why = f"it contains only the last {MAX_SESSIONS} sessions separately"
    reduced = 0
    for device, phase in itertools.product(_devices_of(info), info["phases"]):
        place = {"run": run, "device": device, "phase": phase}
        answer = collected.take("overview", **place, points=POINTS)
        if answer is None or answer.status != 200:
            continue
        head = answer.fields()
        reduced = max(reduced, head["total_rows"] if head["rows"] < head["total_rows"] else 0)
        for route in ("ledger_totals", "pool", "host_memory"):
            collected.take(route, **place, points=points[route])
        sessions = [span["session"] for span in head["sessions"]]
        for session in sessions if len(sessions) > 1 else ():
            is_kept = session in sessions[-MAX_SESSIONS:]
            for route, most in points.items():
                collected.take_if(is_kept, why, route, **place, points=most, session=session)
    if reduced:
        collected.absent.append(
            f"This report contains about {2 * POINTS} of the {reduced} steps of {run}, including "
            "the extremes; zooming shows no more steps."
        )


def _layers(collected: _Collected, info: Mapping[str, Any]) -> None:
    loaded = collected.reader.run(collected.source, info["run"])
    why = f"it contains the last {MAX_TABLES} layer tables"
    for device in (None, *(device for device in _devices_of(info) if "/" in device)):
        place = {"run": info["run"], "device": device}
        collected.take("layers", **place)
        tables = with_layers_of(loaded.run, loaded.by_worker, device).layer_tables
        steps = sorted({table.step for table in tables})
        for step in steps:
            collected.take_if(step in steps[-MAX_TABLES:], why, "layers", **place, step=step)
        if len(steps) > MAX_TABLES:
            collected.absent.append(
                f"{len(steps) - MAX_TABLES} layer tables of {device or info['run']} are not in "
                f"this report: it contains the last {MAX_TABLES}."
            )


def _failures(collected: _Collected, info: Mapping[str, Any]) -> None:
    ooms = collected.reader.run(collected.source, info["run"]).run.ooms
    why = f"it contains the fixes and maps of the last {MAX_OOMS} failed allocations"
    for at, oom in enumerate(ooms):
        for route in ("fixes", "map") if oom.map is not None else ("fixes",):
            is_kept = at >= len(ooms) - MAX_OOMS
            collected.take_if(is_kept, why, route, run=info["run"], oom=at)


def _traced(
    collected: _Collected,
    info: Mapping[str, Any],
    route: str,
    noun: str,
    limit: int,
    stream: Stream,
) -> None:
    """Take the records of each device's traced steps: that of the highest peak, then the last
    ones, the latest first."""
    run = info["run"]
    loaded = collected.reader.run(collected.source, run, {*BASIC, stream}).run
    records: Sequence[Snapshot | MemoryMap | Timeline] = getattr(loaded, f"{route}s")
    records = [one for one in records if None not in (one.step, one.phase)]
    why = f"it contains the last {limit} {noun} and that of the highest peak"
    for device in _devices_of(info):
        place = {"run": run, "device": device}
        of_device = [one for one in records if one.device == device]
        steps = list(dict.fromkeys(map(_step, of_device)))
        highest = sorted(of_device, key=lambda one: -(one.in_use_bytes or 0))[:1]
        kept = dict.fromkeys([*map(_step, highest), *reversed(steps[-limit:])])
        if route == "snapshot":
            shown = {step for step, _ in kept} | {None}
            for step in (None, *sorted({step for step, _ in steps})):
                collected.take_if(step in shown, why, "device_memory", **place, step=step)
        for step, phase in dict.fromkeys([*kept, *steps]):
            is_kept = (step, phase) in kept
            collected.take_if(is_kept, why, route, **place, step=step, phase=phase)
        if len(kept) < len(steps):
            left_out = f"{len(steps) - len(kept)} of the {len(steps)} {noun} of {run} on {device}"
            collected.absent.append(f"{left_out} are not in this report: {why}.")


def _step(record: Snapshot | MemoryMap | Timeline) -> tuple[int, str]:
    return record.step or 0, str(record.phase)


def _activations(collected: _Collected, info: Mapping[str, Any]) -> None:
    if info["activation_layers"]:
        collected.take("activations", run=info["run"], points=ACTIVATION_POINTS)


Part: TypeAlias = Callable[[_Collected, Mapping[str, Any]], None]
PARTS: tuple[Part, ...] = (
    _each("answers", devices=True, phases=True),
    _each("devices", phases=True),
    _overviews,
    _layers,
    _each("oom"),
    _each("maps", "snapshots", devices=True),
    lambda collected, info: _traced(
        collected, info, "snapshot", "snapshots", MAX_SNAPSHOTS, SNAPSHOTS
    ),
    _failures,
    # other conditions and budgets need the server; the page says so
    _each("what_if", "curve", "plan", "demand", devices=True),
    _each("timelines", devices=True),
    lambda collected, info: _traced(
        collected, info, "timeline", "timelines", MAX_TIMELINES, TIMELINES
    ),
    lambda collected, info: _traced(collected, info, "map", "memory maps", MAX_MAPS, MAPS),
    _activations,
)
"""The parts by priority: the last ones are dropped first at the size limit."""
