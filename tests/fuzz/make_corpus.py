"""Writes honest inputs for fuzzing to start from: frames for `fuzz_frames.py`, profiles and a log
for the other.

usage: python tests/fuzz/make_corpus.py CORPUS_DIR      (makes CORPUS_DIR/frames and
CORPUS_DIR/importers)
"""

import gzip
import pathlib
import sys
import tempfile
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from reading_cases import write_small_run

from tb_memplugin.storage.files import FileSource

LOG = (
    "W tensorflow/core/common_runtime/bfc_allocator.cc:501] Allocator (GPU_0_bfc) "
    "ran "
    "out "
    "of "
    "memory trying "
    "to "
    "allocate "
    "2.00MiB (rounded to 2097152)requested by op net/conv\n"
    "I tensorflow/core/common_runtime/bfc_allocator.cc:1068] InUse "
    "at "
    "7f0000000000 "
    "of "
    "size "
    "1048576 next "
    "1\n"
    "I tensorflow/core/common_runtime/bfc_allocator.cc:1068] Free  "
    "at "
    "7f0000100000 "
    "of "
    "size "
    "1048576 next "
    "2\n"
)


def write_frames(target: pathlib.Path) -> None:
    """One honest frame of each stream, its body unpacked as the fuzz target wants it."""
    with tempfile.TemporaryDirectory() as directory:
        write_small_run(pathlib.Path(directory) / "run", allocator=True)
        source = FileSource(directory)
        wanted = {run: list(tags) for run, tags in source.listing().items()}
        for content in source.read(wanted):
            for at, stored in enumerate(content.frames):
                name = content.tag.replace("/", "_")
                (target / f"{name}_{at}").write_bytes(
                    stored.data[:40] + zlib.decompress(stored.data[40:])
                )


def write_importers(target: pathlib.Path) -> None:
    """The recorded profiles of the tests, and a log; the first byte chooses the reader."""
    profiles = pathlib.Path(__file__).parent.parent / "fixtures" / "profiles"
    for path in profiles.glob("*.gz"):
        (target / path.stem).write_bytes(b"\0" + gzip.decompress(path.read_bytes()))
    (target / "log").write_bytes(b"\2" + LOG.encode())


def main() -> None:
    target = pathlib.Path(sys.argv[1])
    for name, write in (("frames", write_frames), ("importers", write_importers)):
        (target / name).mkdir(parents=True, exist_ok=True)
        write(target / name)


if __name__ == "__main__":
    main()
