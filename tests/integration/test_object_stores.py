"""Runs in an object store, written and read through TensorFlow's and TensorBoard's file layers.

The stores are in the memory of a child process.
"""

import json
import pathlib
from typing import Any

from child import run_child, start_child
from reading_cases import write_small_run
from stores import TRAINING

SERVING = """
import sys
from servers import BASE, client_on


def tab(logdir):
    # As TensorBoard's own data ingester does; --load_fast reads other stores than its data server
    # supports this way.
    client = client_on(logdir)

    def get(request):
        response = client.get(BASE + request)
        assert response.status_code == 200, response.text
        return response

    return get
"""

READ = """
import json, types

sys.modules["tensorboard.compat.notf"] = types.ModuleType(
    "notf"
)  # TensorBoard's own file layer: S3 and fsspec
import fsspec, pathlib

files = fsspec.filesystem("memory")
for path in pathlib.Path(sys.argv[1]).rglob("*tfevents*"):
    files.pipe(f"memory://bucket/{path.relative_to(sys.argv[1]).as_posix()}", path.read_bytes())
place = "run=exp&device=CPU:0"


def told(get):
    runs = [
        {name: value for name, value in run.items() if name != "version"}
        for run in get("runs").json["runs"]
    ]
    steps = get(f"overview?{place}").data.hex()
    return [runs, get(f"answers?{place}").json, get(f"snapshot?{place}&step=41").json, steps]


assert "tensorflow" not in sys.modules
remote, local = told(tab("memory://bucket")), told(tab(sys.argv[1]))
print(json.dumps({"same": remote == local, "runs": remote[0], "steps": remote[2]["step"]}))
"""


def test_the_tab_shows_of_an_object_store_what_it_shows_of_a_directory(
    tmp_path: pathlib.Path,
) -> None:
    write_small_run(tmp_path / "exp")
    # A process of its own: those of `run_child` begin with TensorFlow.
    with start_child("-c", SERVING + READ, str(tmp_path)) as child:
        out, errors = child.communicate(timeout=240)
    assert child.returncode == 0, errors[-4000:]
    told: Any = json.loads(out.splitlines()[-1])
    assert told["same"] and told["steps"] == 41
    (run,) = told["runs"]
    assert (run["run"], run["steps"], run["damage"], run["notes"]) == ("exp", 60, [], [])


def test_a_training_records_into_an_object_store(tmp_path: pathlib.Path) -> None:
    # GIVEN TensorFlow's file system in memory, which is no local path to the recorder
    code = """
files = train("ram://bucket/exp")
answer({"files": files, "runs": tab("ram://bucket")("runs").json["runs"]})
"""
    told = run_child(SERVING + TRAINING + code)
    (run,) = told["runs"]
    assert (run["run"], run["steps"], run["sessions"], run["damage"]) == ("exp", 90, 1, [])
    assert run["devices"][0]["snapshots"] > 0 and told["files"] > 1
