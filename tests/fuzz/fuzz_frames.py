"""Coverage-guided fuzzing of what reads frames from strangers: nothing may be raised, quickly and
in bounded memory.

Needs `pip install atheris`. usage: python tests/fuzz/fuzz_frames.py [-max_total_time=600]
[CORPUS_DIR]
"""

import struct
import sys
import zlib

import atheris

with atheris.instrument_imports(include=["tb_memplugin"]):
    from tb_memplugin.storage import OF_TAG, decode_tag
    from tb_memplugin.storage.files import ByteBudget, StoredFrame, TagContent
    from tb_memplugin.storage.frames import STREAMS, Tag, codec


def sealed(data: bytes) -> bytes:
    """`data` as a frame whose magic, checksum and body size are right, so that the fuzzer gets past
    them."""
    body = data[40:]
    header = bytearray(data[:40].ljust(40, b"\0"))
    struct.pack_into(
        "<4sHH", header, 0, codec.MAGIC, codec.FORMAT_VERSION, header[6] % len(STREAMS)
    )
    struct.pack_into("<I", header, 36, len(body))
    packed = zlib.compress(body, 0)
    struct.pack_into("<I", header, 8, codec._checksum(bytes(header), bytes(header[12:]) + packed))
    return bytes(header) + packed


def one_input(data: bytes) -> None:
    """Decodes `data` as it is, then sealed as a frame of the stream that its header names."""
    names = list(OF_TAG)
    stream = names[data[6] % len(names)] if len(data) > 6 else names[0]
    tag = Tag("20260101T000000Z-00000000", stream, 0)
    frames = (StoredFrame(0, data), StoredFrame(1, sealed(data)))
    decoded = decode_tag(tag, TagContent("run", str(tag), frames), ByteBudget(256 << 20))
    assert len(decoded.pieces) + len(decoded.damage) + (decoded.newer is not None) >= 1


def main() -> None:
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
