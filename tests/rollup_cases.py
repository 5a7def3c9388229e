"""Roll-ups as they were written."""

import os

from tb_memplugin.schema import WorkerSummary
from tb_memplugin.storage import decode_tag
from tb_memplugin.storage.files import ByteBudget, FileSource
from tb_memplugin.storage.frames import parse_tag, run_name


def rollups_of(
    logdir: str | os.PathLike[str], worker: str = ""
) -> list[tuple[str, int, WorkerSummary]]:
    """Every roll-up under a directory: its session, the bytes of its frame, and what it says; in
    order of writing."""
    source = FileSource(logdir)
    found = []
    for run, tags in source.listing().items():
        parsed = sorted(
            tag for text in tags if (tag := parse_tag(text)) is not None and tag.stream == "rollups"
        )
        contents = {
            content.tag: content for content in source.read({run: [str(tag) for tag in parsed]})
        }
        for tag in parsed if run_name(run)[1] == worker else ():
            decoded = decode_tag(tag, contents[str(tag)], ByteBudget(1 << 30))
            assert not decoded.damage and decoded.newer is None
            sizes = [len(frame.data) for frame in contents[str(tag)].frames]
            found += [
                (tag.session, size, piece.value)
                for size, piece in zip(sizes, decoded.pieces, strict=True)
            ]
    return found
