"""Coverage-guided fuzzing of what reads TensorFlow's own files from strangers: nothing but
`FormatError` may be raised.

The first byte of an input chooses the reader: profiles, memory dumps, logs, compiled modules.

Needs `pip install atheris`. usage: python tests/fuzz/fuzz_importers.py [-max_total_time=600]
[CORPUS_DIR]
"""

import contextlib
import sys

import atheris

with atheris.instrument_imports(include=["tb_memplugin"]):
    from tb_memplugin.analysis import log_findings
    from tb_memplugin.attribution import AttributedStep, facts_from_names
    from tb_memplugin.errors import FormatError
    from tb_memplugin.importers import read_dump, read_log, read_module, read_traces
    from tb_memplugin.schema import Timeline
    from tb_memplugin.storage.frames import codec, frame_of, read_frame


def read_profile(data: bytes) -> None:
    """Reads a profile, and makes the ledger and the timeline of every allocator in it."""
    for trace in read_traces(data):
        step = AttributedStep(trace, facts_from_names(trace), step=0, phase="train", wall_time=0.0)
        snapshot, inside = step.snapshot, step.timeline()
        assert sum(row.bytes for row in snapshot.ledger) == snapshot.in_use_bytes
        if inside is not None:
            read_frame(Timeline, codec.decode(codec.encode(frame_of("timelines", inside, 0))))


def read_text(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    log_findings(text)
    read_log(text, 0.0)


READERS = (
    read_profile,
    lambda data: read_dump(data, 0.0),
    read_text,
    read_module,
)


def one_input(data: bytes) -> None:
    """Lets the chosen reader read the rest of `data`."""
    if not data:
        return
    with contextlib.suppress(FormatError):
        READERS[data[0] % len(READERS)](data[1:])


def main() -> None:
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
