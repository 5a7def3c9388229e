"""The unit of an export: one worker of one run. It is read without the other workers, so memory stays bounded."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence

from tb_memplugin.events.frames.metadata import run_name
from tb_memplugin.export.schema import VERSION
from tb_memplugin.reader.decode.streams import META, OOM, PEAK, SAMPLES, SNAPSHOTS, Stream
from tb_memplugin.reader.files import directories
from tb_memplugin.reader.files import storage as files
from tb_memplugin.reader.files.file_source import FileSource
from tb_memplugin.reader.files.source import SourceError
from tb_memplugin.reader.run_reader import LoadedRun, Reader

EXPORTED = frozenset({META, SAMPLES, PEAK, SNAPSHOTS, OOM})
"""The streams that the tables are made of."""


@dataclasses.dataclass(frozen=True)
class ExportUnit:
    """The event files of one worker.

    Attributes:
        logdir: The log directory.
        run, worker: Names of the run and of the worker's directory.
        files: TensorBoard's run name to paths of event files.
        damage: TensorBoard's run name to sentences on directories that cannot be listed.
    """

    logdir: str
    run: str
    worker: str
    files: Mapping[str, Sequence[str]]
    damage: Mapping[str, Sequence[str]]


def export_units(logdir: str) -> Iterator[ExportUnit]:
    """The workers under a log directory, by run and worker; opens no event file.

    Raises:
        NotFoundError: There is no such directory.
    """
    logdir = files.log_directory(logdir)
    found = directories.event_files(logdir)
    grouped: dict[tuple[str, str], list[str]] = {}
    for event_run in sorted({*found.files, *found.damage}):
        grouped.setdefault(run_name(event_run), []).append(event_run)
    for (run, worker), names in sorted(grouped.items()):
        yield ExportUnit(
            logdir,
            run,
            worker,
            {name: tuple(found.files[name]) for name in names if name in found.files},
            {name: tuple(found.damage[name]) for name in names if name in found.damage},
        )


def fingerprint(unit: ExportUnit) -> str:
    """Changes whenever one of the unit's files does. Raises whatever the file system raises."""
    states = {
        path.removeprefix(unit.logdir): (state.length, state.modified)
        for paths in unit.files.values()
        for path in paths
        for state in (files.state(path),)
    }
    return json.dumps([VERSION, sorted(states.items()), sorted(unit.damage.items())])


def read_unit(unit: ExportUnit, streams: frozenset[Stream] = EXPORTED) -> LoadedRun | None:
    """The data of a worker; None if its files hold none of this plugin's.

    Raises:
        SourceError: A file or a directory cannot be read now: the data would be incomplete, and the fingerprint would
            stay the same.
    """
    source = FileSource(unit.logdir, found=directories.Found(unit.files, unit.damage))
    reader = Reader(cache_bytes=0)
    tags = reader.catalog(source).get(unit.run)
    for sentence in source.unread():
        raise SourceError(sentence)
    return None if tags is None else reader.load(source, tags, streams)
