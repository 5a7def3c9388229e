"""``tb-memplugin import`` of files, shown by ``inspect``."""

import gzip
import json
import os
import pathlib
import time

import pytest
from dump_cases import field, make_dump
from log_cases import MESSAGE, make_log

import tb_memplugin
from tb_memplugin.cli import main


def test_a_dump_and_a_log_become_runs_that_inspect_shows(tmp_path, capsys) -> None:
    # GIVEN a dead job's files
    log, dump = tmp_path / "job 7.log", tmp_path / "p_GPU_0_bfc.1795171972343248"
    log.write_text("\n".join([*make_log("2.21"), MESSAGE]))
    dump.write_bytes(make_dump())
    (tmp_path / "p_GPU_0_bfc.1795171982343248").write_bytes(make_dump())
    logdir = str(tmp_path / "runs")
    assert main(["import", str(log), "--logdir", logdir]) == 0
    assert (
        main(
            [
                "import",
                *map(str, sorted(tmp_path.glob("p_*"))),
                "--logdir",
                logdir,
                "--run",
                "team/dumps",
            ]
        )
        == 0
    )
    assert "job_7: 1 failed allocation\n" in capsys.readouterr().out
    runs = tb_memplugin.load(logdir)
    assert sorted(runs) == ["job_7", "team/dumps"]
    (logged,), (dumped,) = runs["job_7"].ooms, runs["team/dumps"].ooms
    assert (logged.device, logged.verdict, logged.requested_bytes) == (
        "GPU:0",
        "fragmentation",
        6040,
    )
    assert (dumped.status, dumped.verdict, dumped.wall_time) == ("failing", None, 1795171982.343248)
    assert main(["inspect", logdir, "--run", "job_7", "--format", "json"]) == 0
    (described,) = json.loads(capsys.readouterr().out)["runs"]["job_7"]["oom"]
    assert (described["free_bytes"], described["largest_free_bytes"]) == (7 << 10, 4 << 10)
    assert main(["inspect", logdir, "--run", "job_7", "--verbose"]) == 0
    assert "verdict: fragmentation" in capsys.readouterr().out


def jax_profile() -> bytes:
    """A profile of a CPU with one call of a JAX function, and no event of an allocator."""
    metadata = field(1, 1) + field(2, b"PjitFunction(f)")
    line = field(2, b"python") + field(4, field(1, 1) + field(2, 5) + field(3, 10))
    names = field(4, field(1, 1) + field(2, metadata))
    return field(1, field(2, b"/host:CPU") + field(3, line) + names)


CUDNN = b"E cuda_dnn.cc:328] Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED\n"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("jax.xplane.pb", jax_profile(), "no events of an allocator"),
        ("vm.trace.json.gz", gzip.compress(b"{}", mtime=0), "pass the profile (*.xplane.pb)"),
        ("vm.trace.json", b'{"displayTimeUnit":"ns","traceEvents":[]}', "*.xplane.pb"),
        ("cudnn.log", CUDNN, "outside TensorFlow's pool"),
        ("killed.log", b"Epoch 1/3\nKilled\n", "Host memory is RAM"),
        ("empty", b"", "0 bytes"),
        ("picture.png", b"\x89PNG\0\0\0\0", "unknown format"),
        ("notes.txt", b"nothing happened", "has no failed allocation"),
        ("x.xplane.pb", b"\xff\xff\xff", "not a TensorFlow profile"),
        ("half.bin", make_dump()[:20], "contain no chunk"),
        ("open.log", b"Allocator (" * 50_000, "has no failed allocation"),
        ("lines.log", b"\n".join([b"Allocator (" * 1000] * 50), "has no failed allocation"),
        (
            "rounded.log",
            b"Allocator (x) ran out of memory trying to "
            b"allocate "
            b"1.0GiB "
            b"(rounded "
            b"to " + b"9" * 6000 + b")\n",
            "a number of 6000 digits",
        ),
        (
            "shape.log",
            b"OOM when allocating tensor with shape[" + b"9" * 6000 + b"] and type float",
            "6000 digits",
        ),
    ],
)
def test_an_unknown_file_is_refused_in_a_sentence_and_nothing_is_written(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: bytes,
    sentence: str,
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    began = time.process_time()
    assert main(["import", str(path), "--logdir", str(tmp_path / "runs")]) == 2
    assert time.process_time() - began < 5
    printed = capsys.readouterr().err
    assert sentence in printed and name in printed and printed.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_what_is_no_file_and_a_run_outside_logdir_are_refused(tmp_path, capsys) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "a").write_bytes(make_dump())
    no_file = "is not a regular file"
    cases = [
        (tmp_path / "none", "cannot be read"),
        (tmp_path / "pipe.log", no_file),
        ("/dev/zero", no_file),
    ]
    for path, sentence in [*cases, (tmp_path, no_file)]:
        assert main(["import", str(path), "--logdir", str(tmp_path / "runs")]) == 2
        assert f"{path} {sentence}" in capsys.readouterr().err
    assert (
        main(["import", str(tmp_path / "a"), "--logdir", str(tmp_path / "runs"), "--run", "../b"])
        == 2
    )
    assert "--run must be a name relative to LOGDIR" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_findings_beside_a_failure_are_notes_of_the_run(tmp_path, capsys) -> None:
    log, kernel = tmp_path / "job.log", tmp_path / "dmesg"
    log.write_text("\n".join([*make_log("2.21"), MESSAGE, CUDNN.decode()]))
    kernel.write_text(
        "Out of memory: Killed process 991 (py\x1b[1mthon3) total-vm:8kB, anon-rss:4kB"
    )
    logdir = str(tmp_path / "runs")
    assert main(["import", str(log), str(kernel), "--logdir", logdir]) == 0
    printed = capsys.readouterr().out
    assert "job: 1 failed allocation\njob: CUDNN_STATUS_ALLOC_FAILED: " in printed
    assert "job: The kernel's OOM killer ended process 991 (python3), which held 4.0 KiB" in printed
    (run,) = tb_memplugin.load(logdir).values()
    assert [note[:10] for note in run.notes] == ["CUDNN_STAT", "The kernel"]
    assert main(["inspect", logdir]) == 0
    assert "note: The kernel's OOM killer" in capsys.readouterr().out


def test_the_layer_and_the_kind_of_memory_are_in_the_summary(tmp_path, capsys) -> None:
    """The size of the result of an eager op follows from its layer's arguments."""
    log = tmp_path / "eager.log"
    log.write_text(
        "Exception encountered when calling Activation.call().\n\n\x1b[1m{{function_node "
        "__wrapped__Sigmoid_device_/job:localhost/replica:0/task:0/device:GPU:0}} failed to "
        "allocate memory [Op:Sigmoid] name: \x1b[0m\n\nArguments received by Activation.call():"
        "\n  • inputs=tf.Tensor(shape=(16, 32, 32, 1344), dtype=float32)\n"
    )
    pinned = tmp_path / "pinned.log"
    pinned.write_text(MESSAGE.replace("GPU:0", "CPU:0").replace("GPU_0_bfc", "gpu_host_bfc"))
    shown = []
    for path in (log, pinned):
        assert main(["import", str(path), "--logdir", str(tmp_path / path.stem)]) == 0
        assert main(["inspect", str(tmp_path / path.stem)]) == 0
        shown.append(capsys.readouterr().out)
    assert "84.0 MiB requested by layer Activation, Sigmoid, [16,32,32,1344] float." in shown[0]
    assert "5.9 KiB of pinned host memory requested by [10,151] float." in shown[1]
    assert "not memory of a GPU. Do not put the whole data set into one tensor" in shown[1]


XLA = pathlib.Path(__file__).parents[2] / "fixtures" / "xla"


def test_a_directory_of_xla_becomes_a_run_with_its_largest_module_first(tmp_path, capsys) -> None:
    # GIVEN a dump with two modules, one from before the optimizations, and a text file
    dump = tmp_path / "dump"
    dump.mkdir()
    for number, name in enumerate(("keras_cnn", "flax_transformer")):
        data = gzip.decompress((XLA / f"{name}.hlo.pb.gz").read_bytes())
        for stage in ("before_optimizations", "cpu_after_optimizations"):
            (dump / f"module_{number}.jit_train_step.{stage}.hlo.pb").write_bytes(data)
    (dump / "module_0.jit_train_step.cpu_after_optimizations.txt").write_text("HloModule")
    logdir = str(tmp_path / "runs")
    # WHEN it is imported
    assert main(["import", str(dump), "--logdir", logdir]) == 0
    # THEN each module is a step, and the largest is what the run shows
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and "module jit_train_step, arguments 2.1 MiB" in lines[0]
    run = tb_memplugin.load(logdir)["dump"]
    assert [one.device for one in run.snapshots] == ["CPU:0", "CPU:0"]
    first, second = run.snapshots
    assert first.in_use_bytes > second.in_use_bytes > 40 << 20
    assert {one.step for one in run.timelines} == {0, 1}
    assert main(["inspect", logdir]) == 0
    shown = capsys.readouterr().out
    assert "Net/block_0" in shown and "capacity unknown" in shown
    # AND the list of runs has the records of the HTTP API
    assert main(["runs", logdir, "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["format"] == 1 and listed["plugin_version"]
    (entry,) = listed["runs"]
    assert (entry["run"], entry["rank"], entry["status"]) == ("dump", 0, "ok")
    assert entry["devices"][0]["peak_bytes"] == first.in_use_bytes
    assert main(["runs", logdir]) == 0
    assert capsys.readouterr().out.split()[:3] == ["run", "status", "device"]


def test_live_arrays_of_jax_become_held_tensors_with_lines(tmp_path, capsys) -> None:
    logdir = str(tmp_path / "runs")
    assert main(["import", str(XLA / "keras_cnn.prof"), "--logdir", logdir]) == 0
    (snapshot,) = tb_memplugin.load(logdir)["keras_cnn"].snapshots
    assert snapshot.in_use_bytes == sum(one.bytes for one in snapshot.held_tensors)
    largest = snapshot.held_tensors[0]
    assert largest.held_by == "made in iterator_step"
    assert (largest.line or "").startswith("make.py:")
