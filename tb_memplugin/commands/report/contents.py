"""Contents of a report: the selected runs and their responses."""

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence

from tb_memplugin.commands.report.answers import ChosenRuns, CollectedAnswers, Question, StoredAnswer
from tb_memplugin.commands.report.parts import PARTS, ReportRun
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.model.text import clean, unknown_name
from tb_memplugin.model.units import format_bytes
from tb_memplugin.progress import Progress
from tb_memplugin.reader.catalog import RunTags, no_records
from tb_memplugin.reader.files.file_source import FileSource
from tb_memplugin.reader.run_reader import Reader

MAX_RUNS = 8
"""Most runs in a report; if none are named, the newest ones."""
NAMED_RUNS = 12
"""Most runs left out that a sentence names."""
MAX_DATA_BYTES = 24 << 20
"""Limit of packed responses in characters: fits into an email."""


@dataclasses.dataclass(frozen=True)
class Contents:
    """Contents of a report.

    Attributes:
        runs: Names of the runs.
        answers: Responses in order of their requests; the first is that of ``runs``.
        refusals: Requests that the page answers with a sentence.
        absent: Sentences on data left out of the report.
    """

    runs: tuple[str, ...]
    answers: tuple[StoredAnswer, ...]
    refusals: tuple[tuple[Question, str], ...]
    absent: tuple[str, ...]


def collect(
    logdir: str | os.PathLike[str], names: Sequence[str] = (), max_data_bytes: int = MAX_DATA_BYTES
) -> Contents:
    """Collect a report on the runs `names` under `logdir`, or on the newest ones.

    Raises:
        NotFoundError: The directory or a run does not exist, or there are no runs.
        RequestError: Too many runs, or the list of runs exceeds `max_data_bytes`.
    """
    source = FileSource(logdir)
    catalog = Reader().catalog(source)
    chosen = _chosen(catalog.values(), os.fspath(logdir), list(dict.fromkeys(names)))
    collected = CollectedAnswers(Reader(), ChosenRuns(source, chosen), max_data_bytes)
    listed = collected.take("runs")
    if listed is None:
        raise RequestError(f"the list of runs exceeds the report's limit of {max_data_bytes} bytes; pass fewer --run")
    runs = [ReportRun(info) for info in listed.fields()["runs"]]
    absent: list[str] = []
    if not names:
        absent.extend(_left_out([name for name in catalog if name not in chosen]))
    with Progress("report", len(PARTS) * len(runs)) as progress:
        for part, run in itertools.product(PARTS, runs):
            progress.part(clean(run.name))
            absent.extend(part(collected, run))
    absent.extend(_dropped(collected, max_data_bytes))
    return Contents(tuple(run.name for run in runs), tuple(collected.answers), tuple(collected.refusals), tuple(absent))


def _chosen(catalog: Iterable[RunTags], logdir: str, names: list[str]) -> list[str]:
    known = {tags.name: tags for tags in catalog}
    if not known:
        raise no_records(logdir)
    for name in names:
        if name not in known:
            raise NotFoundError(unknown_name("no run", name, known))
    if len(names) > MAX_RUNS:
        raise RequestError(f"a report contains at most {MAX_RUNS} runs. Received: {len(names)} runs")
    # Identifiers of sessions sort by start time.
    newest = sorted(known, key=lambda name: max((entry[2].session for entry in known[name].tags), default=""))
    return names or newest[-MAX_RUNS:]


def _left_out(names: Sequence[str]) -> Iterator[str]:
    """A sentence on the runs that a report without named runs leaves out."""
    if names:
        more = f" and {len(names) - NAMED_RUNS} more" if len(names) > NAMED_RUNS else ""
        verb = "is" if len(names) == 1 else "are"
        yield (
            f"{', '.join(names[:NAMED_RUNS])}{more} {verb} not in this report: without --run it contains the newest "
            f"{MAX_RUNS} runs."
        )


def _dropped(collected: CollectedAnswers, limit: int) -> list[str]:
    return [
        f"{count} responses of route “{route}” are not in this report: it reached its limit of "
        f"{format_bytes(limit)} of data."
        for route, count in collected.dropped.items()
    ]
