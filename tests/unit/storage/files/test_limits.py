"""Limits on the memory and time that one run may cost, whatever its directory states."""

import dataclasses
import pathlib
import threading
from typing import Any

import pytest
from reading_cases import DEVICE, make_activations, make_samples, write_frames, write_small_run

from tb_memplugin.schema import MISSING, Run
from tb_memplugin.storage import Reader
from tb_memplugin.storage import run_reader as reader_module
from tb_memplugin.storage.files import FileSource, file_source
from tb_memplugin.storage.frames import codec, frame_of
from tb_memplugin.storage.read import ACTIVATIONS, BASIC, reading
from tb_memplugin.storage.write import RunWriter


def read_run(logdir: pathlib.Path, name: str = "exp") -> Run:
    return Reader().run(FileSource(logdir), name).run


@pytest.mark.parametrize("frames_per_tag", [40, 8])  # no writer makes tags of more than eight
def test_a_run_over_the_limit_shows_what_fits_and_says_so(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, frames_per_tag: int
) -> None:
    parts = [frame_of("samples", make_samples(range(100 * at, 100 * at + 100), [1] * 100), at) for at in range(40)]
    frames = [(f"samples/s/{at // frames_per_tag}", at, codec.encode(part)) for at, part in enumerate(parts)]
    write_frames(tmp_path / "exp" / "memory", frames)
    monkeypatch.setattr(reading, "MAX_RUN_BYTES", 100_000)
    run = read_run(tmp_path)
    assert 0 < len(run.samples) < 4000
    assert any("not shown: the run exceeds the limit of its size" in sentence for sentence in run.damage)


def test_stored_bytes_of_a_tag_are_limited(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_frames(tmp_path / "exp" / "memory", [("samples/s/0", at, bytes(1000)) for at in range(10)])
    monkeypatch.setattr(file_source, "MAX_TAG_BYTES", 5_000)
    source = FileSource(tmp_path)
    (content,) = source.read({run: list(tags) for run, tags in source.listing().items()})
    assert len(content.frames) == 4 and "6 events are not read" in content.damage[0]


def test_many_devices_workers_and_sessions_are_limited_and_counted(tmp_path: pathlib.Path) -> None:
    # GIVEN 300 devices in frames of 100, 130 workers, and 1,100 sessions
    def frame(step: int, devices: list[str], sequence: int = 0) -> bytes:
        part = make_samples([step], [step])
        part = dataclasses.replace(part, devices=dict.fromkeys(devices, part.devices[DEVICE]))
        return codec.encode(frame_of("samples", part, sequence))

    names = [f"GPU:{at}" for at in range(300)]
    parts = [("samples/s/0", at, frame(at, names[100 * at : 100 * at + 100], at)) for at in range(3)]
    write_frames(tmp_path / "devices" / "memory", parts)
    for at in range(130):
        write_frames(tmp_path / "workers" / "memory" / f"w{at:03}", [("samples/s/0", 0, frame(0, ["GPU:0"]))])
    parts = [(f"samples/s{at:04}/0", at, frame(at, ["GPU:0"])) for at in range(1100)]
    write_frames(tmp_path / "sessions" / "memory", parts)
    devices, workers, sessions = (read_run(tmp_path, name) for name in ("devices", "workers", "sessions"))
    assert len(devices.samples.devices) == 256 and "44 of 300 devices are not shown" in " ".join(devices.damage)
    assert len(workers.workers) == 128 and "2 workers are not shown" in " ".join(workers.damage)
    assert len(sessions.sessions) == 1000 and "100 sessions are not shown" in " ".join(sessions.damage)
    assert sessions.samples.step[-1] == 1099


def test_64_workers_of_8_devices_are_all_shown(tmp_path: pathlib.Path) -> None:
    part = make_samples(range(20), range(20))
    figures = part.devices[DEVICE]
    for at in range(64):
        writer = RunWriter(tmp_path / "exp", worker=f"worker_{at:02}")
        writer.samples(dataclasses.replace(part, devices={f"GPU:{device}": figures for device in range(8)}))
        writer.close()
    run = read_run(tmp_path)
    assert len(run.samples.devices) == 512 and run.damage == ()
    peaks = run.samples.devices["worker_07/GPU:3"].peak_bytes
    assert sorted(peaks[peaks != MISSING].tolist()) == list(range(20)) and len(peaks) == 64 * 20
    assert run.samples.step[peaks != MISSING].tolist() == list(range(20))


def test_a_lack_of_memory_is_damage_of_the_run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_small_run(tmp_path / "exp")

    def no_memory(*args: object, **kwargs: object) -> object:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(codec, "decode_columns", no_memory)
        damage = read_run(tmp_path).damage
    assert damage and all("not enough memory to read it" in sentence for sentence in damage)
    monkeypatch.setattr(reader_module, "session_from_pieces", no_memory)
    assert read_run(tmp_path).damage == ("the run is not shown: there is not enough memory for it",)


def test_a_run_that_takes_long_does_not_delay_another(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a reader that is in the middle of one run
    write_small_run(tmp_path / "slow")
    write_small_run(tmp_path / "quick")
    source, reader = FileSource(tmp_path), Reader()
    inside, release = threading.Event(), threading.Event()
    original = reader_module.session_from_pieces

    def wait(*args: Any) -> Any:
        if threading.current_thread().name == "slow":
            inside.set()
            assert release.wait(30)
        return original(*args)

    monkeypatch.setattr(reader_module, "session_from_pieces", wait)
    thread = threading.Thread(target=lambda: reader.run(source, "slow"), name="slow")
    thread.start()
    assert inside.wait(30)
    # THEN another one is read meanwhile
    assert len(reader.run(source, "quick").run.samples)
    release.set()
    thread.join(30)


def test_activations_over_the_limit_are_counted_without_decoding_them(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = RunWriter(tmp_path / "exp")
    for at in range(40):
        writer.activations(make_activations(range(at * 100, at * 100 + 100), ["x", "y"], [[1, 2]] * 100))
    writer.close()
    source, reader = FileSource(tmp_path), Reader()
    monkeypatch.setattr(reading, "MAX_ACTIVATION_VALUES", 3_000)
    _, surveyed = reader.survey_activations(source, reader.catalog(source)["exp"])
    loaded = reader.run(source, "exp", {*BASIC, ACTIVATIONS}).run
    assert len(loaded.activations) == 1500 and set(surveyed) == set(loaded.damage)
    told = " ".join(surveyed)
    assert "3 tags are not shown" in told and "1 frames are not shown" in told
