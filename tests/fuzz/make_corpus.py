"""Writes one honest frame of each stream, unpacked as the fuzz target wants them, for fuzzing to start from.

usage: python tests/fuzz/make_corpus.py CORPUS_DIR
"""

import pathlib
import sys
import tempfile
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from reading_cases import write_small_run

from tb_memplugin.store.file_source import FileSource


def main() -> None:
    target = pathlib.Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        write_small_run(pathlib.Path(directory) / "run")
        source = FileSource(directory)
        wanted = {run: list(tags) for run, tags in source.listing().items()}
        for content in source.read(wanted):
            for at, stored in enumerate(content.frames):
                name = content.tag.replace("/", "_")
                (target / f"{name}_{at}").write_bytes(stored.data[:40] + zlib.decompress(stored.data[40:]))


if __name__ == "__main__":
    main()
