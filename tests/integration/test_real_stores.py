"""Runs in S3 and Google Cloud Storage: moto's server and a GCS emulator, behind a proxy that
injects faults.

Whatever the store does, a value is that of the local directory, or a sentence says what could not
be read.
"""

import base64
import functools
import gzip
import json
import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import stores
from child import run_child
from cluster_cases import write_cluster
from handlers import Handlers
from reading_cases import MIB, event_files, make_samples, write_small_run
from servers import Server, start, view, wait_for, without_version
from stores import Faults, Store
from test_report import read_report

from tb_memplugin.storage import Reader
from tb_memplugin.storage.files import FileSource
from tb_memplugin.storage.files import file_systems as files
from tb_memplugin.storage.write import RunWriter

pytestmark = pytest.mark.long
for package in ("moto", "flask", "boto3", "s3fs", "gcsfs", "gcp_storage_emulator"):
    pytest.importorskip(package, reason=f"{package} is not installed: pip install -e '.[bench]'")

PASSING = Faults(("error", "cut", "slow"), seed=0, share=0.5)
"""Faults that pass: the first request for every other address fails."""
LIMIT = ("--max-peak", "1GiB")
"""Above every peak of the runs, which are 700 MiB."""
ROUTES = ("answers?{}", "snapshot?{}&step=41", "overview?{}", "layers?{}", "snapshots?{}")


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A run, and one of two workers; their files have the same names in each run of the tests, as
    have the faults."""
    directory = tmp_path_factory.mktemp("runs")
    write_small_run(directory / "exp")
    for worker in ("w0", "w1"):
        write_small_run(directory / "team", worker=worker)
    for path in event_files(directory):
        path.rename(path.parent / "events.out.tfevents.1790000000.0000")
    return directory


@pytest.fixture(params=["s3", "gs"])
def store(
    request: pytest.FixtureRequest, logdir: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Store]:
    with stores.s3() if request.param == "s3" else stores.gcs() as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        store.upload(logdir)
        yield store


def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs the command line; it never ends with a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "tb_memplugin", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert "Traceback" not in done.stderr, done.stderr[-4000:]
    return done


def inspect(logdir: str | pathlib.Path) -> dict[str, Any]:
    done = command("inspect", str(logdir), "--format", "json")
    assert done.returncode == 0, done.stderr[-4000:]
    runs: dict[str, Any] = json.loads(done.stdout)["runs"]
    return runs


@pytest.fixture(scope="module")
def inspected(logdir: pathlib.Path) -> dict[str, Any]:
    """What `inspect` says of the local directory."""
    return inspect(logdir)


def test_inspect_gives_what_it_gives_for_a_directory(
    store: Store, inspected: Mapping[str, Any]
) -> None:
    assert inspect(store.logdir) == inspected
    store.inject(PASSING)
    assert inspect(store.logdir) == inspected
    assert set(store.injected) == {"error", "cut", "slow"}
    # WHEN each body is cut once
    store.inject(Faults(("cut",), objects_only=True))
    assert inspect(store.logdir) == inspected
    assert store.injected["cut"] >= 3


@pytest.mark.parametrize("kind", ["gone", "denied", "short", "cut"])
def test_a_run_that_cannot_be_read_is_named_and_the_others_are_shown(
    store, inspected, kind
) -> None:
    store.inject(Faults((kind,), times=None, of="exp", objects_only=True))
    told = inspect(store.logdir)
    assert store.injected[kind] and told["team"] == inspected["team"]
    (sentence,) = told["exp"]["damage"]
    assert sentence.startswith(
        "run exp/memory: events.out.tfevents.1790000000.0000 cannot be read: "
    )
    assert told["exp"]["steps"] == 0 and "http" not in sentence
    # WHEN the faults end
    store.inject(None)
    assert inspect(store.logdir) == inspected


def test_a_directory_that_cannot_be_listed_does_not_vanish(store, inspected, tmp_path) -> None:
    # gcsfs repeats what was cut for half a minute each time; that of an object is tested above.
    kinds: tuple[stores.Kind, ...] = ("denied", "cut") if store.scheme == "s3" else ("denied",)
    for kind in kinds:
        store.inject(Faults((kind,), times=None, of="prefix=runs/exp/"))
        told = inspect(store.logdir)
        assert told["team"] == inspected["team"]
        assert any(
            "the directory cannot be listed" in text
            for run in told.values()
            for text in run["damage"]
        )
        done = command("check", store.logdir, *LIMIT)
        assert done.returncode == 2 and "the directory cannot be listed" in done.stdout
        done = command("export", store.logdir, "--to", str(tmp_path / kind))
        assert done.returncode == 1 and "2 workers exported" in done.stdout
        store.inject(None)
        done = command("export", store.logdir, "--to", str(tmp_path / kind))
        assert done.returncode == 0 and "1 worker exported, 2 unchanged" in done.stdout


def test_a_store_that_refuses_everything_is_one_sentence(
    store: Store, tmp_path: pathlib.Path
) -> None:
    store.inject(Faults(("denied",), times=None))
    for arguments in (
        ("inspect",),
        ("check", *LIMIT),
        ("export", "--to", str(tmp_path / "tables")),
    ):
        done = command(arguments[0], store.logdir, *arguments[1:])
        (sentence,) = [
            line for line in done.stderr.splitlines() if line.startswith("tb-memplugin: ")
        ]
        assert sentence.startswith(
            f"tb-memplugin: the log directory {store.logdir} cannot be read now: "
        )
        assert done.returncode == 2 and not done.stdout


def test_check_passes_no_run_that_it_could_not_read(store: Store, logdir: pathlib.Path) -> None:
    local = command("check", str(logdir), *LIMIT)
    store.inject(PASSING)
    done = command("check", store.logdir, *LIMIT)
    assert (done.returncode, done.stdout) == (local.returncode, local.stdout) == (0, local.stdout)
    store.inject(PASSING)
    assert command("check", store.logdir, "--max-peak", "699MiB").returncode == 1
    for kind in ("gone", "denied", "short"):
        store.inject(Faults((kind,), times=None, of="team/memory/w1", objects_only=True))
        done = command("check", store.logdir, *LIMIT)
        assert done.returncode == 2 and "team" in done.stdout and "cannot be read" in done.stdout, (
            kind
        )
    # WHEN an upload broke off: the object is whole, its last record is not
    (path,) = event_files(logdir / "exp")
    store.inject(None)
    store.put(path.relative_to(logdir).as_posix(), path.read_bytes()[:-100])
    done = command("check", store.logdir, *LIMIT)
    assert done.returncode == 2 and "ends inside a record" in done.stdout


def tables(directory: pathlib.Path) -> dict[str, list[Any]]:
    """The rows of each table but `dead_letters`, which has the places of files."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra parquet")
    paths = sorted(directory.glob("*/run-*/*.parquet"))
    return {
        path.relative_to(directory).as_posix(): parquet.read_table(path).to_pylist()
        for path in paths
        if "dead_letters" not in path.parts
    }


def test_an_export_names_the_workers_that_could_not_be_read(store, logdir, tmp_path) -> None:
    assert command("export", str(logdir), "--to", str(tmp_path / "local")).returncode == 0
    local, remote = tables(tmp_path / "local"), tmp_path / "remote"
    for kind in ("gone", "denied", "short", "cut"):
        store.inject(Faults((kind,), times=None, of="team/memory/w1", objects_only=True))
        done = command("export", store.logdir, "--to", str(remote / kind))
        assert done.returncode == 1 and "1 worker could not be read" in done.stdout, kind
        assert tables(remote / kind) == {
            path: rows for path, rows in local.items() if "part-w1" not in path
        }
        (letters,) = (remote / kind).glob("dead_letters/run-*/*.parquet")
        assert letters.name == "part-w1.parquet"
        # WHEN the faults end
        store.inject(None)
        done = command("export", store.logdir, "--to", str(remote / kind))
        assert done.returncode == 0 and "1 worker exported, 2 unchanged" in done.stdout, kind
        assert tables(remote / kind) == local
    store.inject(PASSING)
    assert command("export", store.logdir, "--to", str(remote / "passing")).returncode == 0
    assert tables(remote / "passing") == local


def answers_of(logdir: str, file: pathlib.Path) -> dict[tuple[str, str], Any]:
    """The answers in a report, by route and parameters."""
    done = command("report", logdir, "-o", str(file))
    assert done.returncode == 0, done.stderr[-4000:]
    answers: dict[tuple[str, str], Any] = {}
    for answer in read_report(file)["answers"]:
        data = gzip.decompress(base64.b64decode(answer["data"]))
        parameters = json.dumps(answer["parameters"], sort_keys=True)
        answers[answer["route"], parameters] = (
            without_version(data) if answer["route"] == "runs" else data
        )
    return answers


def test_a_report_has_what_that_of_a_directory_has(
    store: Store, logdir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    told = answers_of(str(logdir), tmp_path / "local.html")
    store.inject(PASSING)
    assert answers_of(store.logdir, tmp_path / "remote.html") == told
    assert set(store.injected) == {"error", "cut", "slow"}
    # WHEN a run cannot be read THEN the report says so
    store.inject(Faults(("denied",), times=None, of="exp", objects_only=True))
    runs = answers_of(store.logdir, tmp_path / "part.html")["runs", "{}"]
    damage = {run["run"]: run["damage"] for run in runs}
    assert damage["team"] == [] and "cannot be read" in damage["exp"][0]


def test_a_cluster_costs_a_listing_and_a_read_of_each_file(
    store: Store, tmp_path: pathlib.Path
) -> None:
    # GIVEN many workers in a store that takes its time
    workers = 150
    write_cluster(tmp_path / "logs" / "run", workers, 1, 20, [])
    store.upload(tmp_path / "logs")

    def compared(logdir: str) -> Any:
        answer = Handlers(Reader()).devices(FileSource(logdir, live=True), "run", "train")
        assert len(answer["devices"]) == workers and answer["damage"] == []
        return answer

    told = compared(str(tmp_path / "logs"))
    store.inject(Faults(("slow",), times=None))
    # THEN the comparison of their devices reads the end of each file, several at a time
    assert compared(store.logdir) == told
    assert (store.requests["GET object"], store.requests["HEAD object"]) == (workers, 0)
    assert 4 < store.most_at_once <= files.REQUESTS
    # AND after a look for the log directory each of the directories is listed
    directories = len(
        {parent for name in store.names for parent in pathlib.PurePosixPath(name).parents}
    )
    assert directories > workers and store.requests["GET listing"] == 1 + directories


def runs_of(server: Server) -> dict[str, Any]:
    """The list of runs without what changes from reading to reading."""
    return {name: {**run, "version": None} for name, run in server.runs().items()}


def shown(server: Server) -> list[Any]:
    """What the tab shows of the run `exp`."""
    return [
        runs_of(server),
        *(server.get(route.format("run=exp&device=CPU:0")) for route in ROUTES),
    ]


def grow(logdir: pathlib.Path, folder: pathlib.Path) -> bytes:
    """The event file of `exp` with ten more steps."""
    (path,) = event_files(logdir / "exp")
    writer = RunWriter(folder / "more")
    writer.samples(make_samples(range(60, 70), [300 * MIB] * 10))
    writer.close()
    (more,) = event_files(folder / "more")
    return path.read_bytes() + more.read_bytes()


@pytest.mark.parametrize(
    "serve", [view, functools.partial(start, load_fast="false")], ids=["viewer", "TensorBoard"]
)
def test_the_tab_recovers_and_sees_a_run_grow(store, logdir, tmp_path, serve) -> None:
    with serve(logdir, tmp_path) as server:
        wait_for(lambda: len(runs_of(server)) == 2)
        local = shown(server)
    # Of S3, the length of an object is known when its body is cut; gcsfs would repeat such a
    # request for half a minute. TensorBoard's own reader ends where a run is refused.
    kinds: tuple[stores.Kind, ...] = (
        ("gone", "cut" if store.scheme == "s3" else "short") if serve is view else ()
    )
    for kind in ("denied", *kinds):
        store.inject(Faults((kind,), times=None, of="exp", objects_only=True))
        with serve(store.logdir, tmp_path) as server:
            wait_for(lambda server=server: runs_of(server).get("team") == local[0]["team"])
            assert runs_of(server)["exp"]["steps"] == 0
            assert any(
                "cannot be read" in sentence for sentence in runs_of(server)["exp"]["damage"]
            ), kind
            # WHEN these faults end, and others pass
            store.inject(PASSING)
            wait_for(lambda server=server: runs_of(server) == local[0])
            assert shown(server) == local and store.injected
            if kind == "denied":
                # AND the run grows while it is watched, and requests fail once more
                store.inject(PASSING)
                store.put("exp/memory/events.out.tfevents.1790000000.0000", grow(logdir, tmp_path))
                wait_for(lambda server=server: runs_of(server)["exp"]["steps"] == 70)
                assert runs_of(server)["team"] == local[0]["team"]
        store.upload(logdir)


def test_a_training_records_into_google_cloud_storage(tmp_path: pathlib.Path) -> None:
    # GIVEN TensorFlow's own client, whose requests fail once
    code = stores.TRAINING + 'answer({"files": train("gs://bucket/runs/trained")})\n'
    with stores.gcs() as store:
        # Not PUT: of an upload that failed, the emulator says that one byte of it had come.
        store.inject(Faults(("error",), methods=("GET", "POST")))
        told = run_child(code, environment=store.encrypt(tmp_path))
        assert (
            told["files"] > 1 and store.injected["error"] and "tb_memplugin" not in told["stderr"]
        )
        store.inject(None)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in store.environment.items():
                patch.setenv(name, value)
            (run,) = inspect(store.logdir).values()
    assert (run["steps"], run["damage"]) == (90, [])
    assert run["snapshots"]


REFUSED = """
import time
import keras, numpy as np, tb_memplugin
from tb_memplugin.recorder.loop import sender
sender.REMOTE_FLUSH_SECONDS = 2.0
class Pauses(keras.callbacks.Callback):
    last, longest = None, 0.0

    def on_train_batch_end(self, batch, logs=None):
        now = time.monotonic()
        self.longest, self.last = max(self.longest, now - (self.last or now)), now


def losses(seconds, *more):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, name="logits")], name="net")
    model.compile("sgd", "mse")
    x, y = np.ones((480, 8), "float32"), np.ones((480, 4), "float32")
    pauses, began, found = Pauses(), time.monotonic(), []
    while time.monotonic() - began < seconds or len(found) < 3:
        found += model.fit(x, y, batch_size=16, verbose=0, callbacks=[*more, pauses]).history[
            "loss"
        ]
    return found[:3], pauses.longest


plain, _ = losses(0)
recorded, longest = losses(
    float(sys.argv[1]), tb_memplugin.MemoryCallback("gs://bucket/runs/trained")
)
answer({"same": recorded == plain, "longest": longest})
"""
ATTEMPTS_SECONDS = 10.2
"""TensorFlow repeats a request ten times, here after pauses of 0.01 to 5.12 s."""


def trained_without_a_store(tmp_path: pathlib.Path, seconds: int, uploads: int) -> tuple[Any, int]:
    """What a training says whose store refuses everything after some uploads, and how many requests
    were refused."""
    with stores.gcs() as store:
        environment = store.encrypt(tmp_path)

        def refuse() -> None:
            wait_for(lambda: store.requests["PUT other"] >= uploads)
            store.inject(Faults(("error",), times=None, methods=("POST", "PUT")))

        refusing = threading.Thread(target=refuse)
        refusing.start()
        told = run_child(REFUSED, str(seconds), environment=environment, timeout=250)
        refusing.join()
        return told, store.injected["error"]


def test_a_store_that_fails_during_a_training_holds_it_up_nowhere(tmp_path: pathlib.Path) -> None:
    told, refused = trained_without_a_store(tmp_path, seconds=40, uploads=1)
    assert told["same"] and told["stderr"].count("writing the memory run stopped: ") == 1
    # TensorFlow gave up one request during the training, and no batch waited for that.
    assert refused == 11 and told["longest"] < ATTEMPTS_SECONDS / 2


def test_a_training_that_ends_while_a_store_fails_ends_well(tmp_path: pathlib.Path) -> None:
    # Ended in the middle of TensorFlow's code, its process would be aborted now and then.
    told, refused = trained_without_a_store(tmp_path, seconds=0, uploads=0)
    assert told["same"] and refused >= 11
    assert "waits for up to 240 s until TensorFlow gives up a request" in told["stderr"]
