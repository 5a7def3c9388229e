"""TFRecord files: written record by record, and read past damage."""

import io
import pathlib
import struct
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.tensorflow_stub import pywrap_tensorflow
from tensorboard.summary.writer.record_writer import RecordWriter

from tb_memplugin.storage.frames import LocalRecordFile, masked_crc32c, tfrecord


def test_tensorboards_own_reader_reads_it(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "events.out.tfevents.1.x"
    written = [
        bytes(np.random.default_rng(size).bytes(size)) for size in (0, 1, 500, 5000, 100_000)
    ]
    for part, append in ((written[:3], False), (written[3:], True)):
        file, before = LocalRecordFile(str(path), append=append), path.stat().st_size
        for record in part:
            file.write(record)
        assert path.stat().st_size == before
        file.close()
    found = walked(path.read_bytes())
    assert list(RawEventFileLoader(str(path)).Load()) == written == contents(found) and len(
        found
    ) == len(written)
    # AND the records that wait are bounded
    file = LocalRecordFile(str(path))
    file.write(bytes(tfrecord.MAX_WAITING_BYTES))
    assert path.stat().st_size > tfrecord.MAX_WAITING_BYTES
    file.abandon()


def record_file(contents: list[bytes]) -> bytes:
    stream = io.BytesIO()
    writer = RecordWriter(stream)
    for content in contents:
        writer.write(content)
    return stream.getvalue()


def walked(data: bytes) -> list[tfrecord.Record | tfrecord.Loss]:
    return list(
        tfrecord.walk_records(lambda offset, size: data[offset : offset + size], 0, len(data))
    )


def contents(found: list[tfrecord.Record | tfrecord.Loss]) -> list[bytes]:
    return [
        record.data
        for record in found
        if isinstance(record, tfrecord.Record) and record.is_intact()
    ]


@pytest.mark.parametrize("size", [0, 1, 3, 4, 2047, 2048, 2049, 4096, 8191, 100_000])
def test_the_checksum_is_that_of_tensorboard(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    assert tfrecord.crc32c(data) == pywrap_tensorflow.crc32c(data)
    assert masked_crc32c(data) == pywrap_tensorflow.masked_crc32c(data)


@given(st.lists(st.binary(min_size=1, max_size=50), min_size=2, max_size=6), st.data())
def test_a_damaged_byte_costs_one_record(written: list[bytes], data: st.DataObject) -> None:
    # GIVEN a file with one byte changed
    whole = bytearray(record_file(written))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    # THEN all other records are read, in order, and the loss is reported
    found = walked(bytes(whole))
    read = contents(found)
    lost = next(n for n in range(len(written)) if at < len(record_file(written[: n + 1])))
    assert read == written[:lost] + written[lost + 1 :]
    assert any(isinstance(item, tfrecord.Loss) or not item.is_intact() for item in found)


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=4), st.data())
def test_a_truncated_file_gives_its_whole_records_and_reports_the_last_one(
    written: list[bytes], data: st.DataObject
) -> None:
    whole = record_file(written)
    length = data.draw(st.integers(0, len(whole)))
    found = walked(whole[:length])
    boundaries = [len(record_file(written[:n])) for n in range(len(written) + 1)]
    complete = max(n for n, boundary in enumerate(boundaries) if boundary <= length)
    assert contents(found) == written[:complete]
    at_end = [item for item in found if isinstance(item, tfrecord.Loss)]
    assert at_end == (
        []
        if length in boundaries
        else [tfrecord.Loss(boundaries[complete], length - boundaries[complete], True)]
    )


def test_a_huge_record_is_skipped_unread_and_a_wrong_length_allocates_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tfrecord, "MAX_RECORD_BYTES", 1000)
    assert contents(walked(record_file([b"a", b"x" * 1001, b"b"]))) == [b"a", b"b"]
    # GIVEN a valid header that claims 2^60 bytes
    length = struct.pack("<Q", 1 << 60)
    data = length + struct.pack("<I", masked_crc32c(length)) + b"little"
    assert walked(data) == [tfrecord.Loss(0, len(data), True)]


@pytest.mark.parametrize(
    ("hole", "is_found"),
    [(999_000, True), (1_000_008, False), (1_700_000, False), (5_000_000, False)],
)
def test_a_hole_of_zeros_is_searched_only_so_far(
    hole: int, is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tfrecord, "MAX_SEARCH_BYTES", 1_000_000)
    data = record_file([b"before"]) + bytes(hole) + record_file([b"after"])
    found = walked(data)
    assert contents(found) == [b"before", b"after"][: 1 + is_found]
    # THEN the rest of the file is given up as a whole
    assert is_found or found[-1] == tfrecord.Loss(22, len(data) - 22, False)


def test_the_search_after_damage_costs_no_more_than_the_bytes_it_skips() -> None:
    # GIVEN a stray byte before each of 28,000 records
    record = record_file([b"x"])
    data = (b"\xff" + record) * 28_000
    began = time.process_time()
    found = walked(data)
    # THEN each is found, in time proportional to the file
    assert contents(found) == [b"x"] * 28_000
    assert time.process_time() - began < 8


@settings(max_examples=50)
@given(st.binary(max_size=400))
def test_any_bytes_are_read_to_their_end(data: bytes) -> None:
    covered = 0
    for item in walked(data):
        covered = max(
            covered,
            item.offset + (len(item.data) + 4 if isinstance(item, tfrecord.Record) else item.size),
        )
    assert covered == len(data)


def test_a_file_that_shrinks_while_it_is_read_ends_there() -> None:
    data = record_file([b"one", b"two"])
    found = list(
        tfrecord.walk_records(
            lambda offset, size: data[offset : min(offset + size, 30)], 0, len(data)
        )
    )
    assert contents(found) == [b"one"] and isinstance(found[-1], tfrecord.Loss)
