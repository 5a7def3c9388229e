"""`%load_ext tb_memplugin` and `%memory` in an IPython shell."""

import pathlib

import pytest
from child import run_child

from tb_memplugin import load

SESSION = """
import contextlib, io
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()

def typed(code):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        result = shell.run_cell(code)
    return printed.getvalue(), str(result.result)

shell.run_cell('''
%load_ext tb_memplugin
import keras, numpy as np
original = keras.Model.fit
x, y = np.zeros((64, 8), "float32"), np.zeros((64, 4), "float32")
def make():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    model.compile("adam", "mse")
    return model
first, second = make(), make()
''')
nothing = typed("%memory")[0]
typed("first.fit(x, y, batch_size=8, verbose=0)")
one = typed("%memory")[0]
typed("import os; os.mkdir('elsewhere'); os.chdir('elsewhere')")
two = typed("%%memory\\nsecond.fit(x, y, batch_size=16, verbose=0); print('in the cell')")[0]
typed("first.fit(x, y, batch_size=8, verbose=0)")
again = typed("%memory")[0]
shell.kernel = "a notebook's"
shown = typed("%memory")
del shell.kernel
typed("%unload_ext tb_memplugin")
first_fit = shell.user_ns["keras"].Model.fit
unknown = shell.find_line_magic("memory")
answer({"nothing": nothing, "one": one, "two": two, "again": again, "shown": shown,
        "restored": not hasattr(first_fit, "tb_memplugin_automatic"), "unknown": unknown is None})
"""


def test_trainings_of_a_notebook_are_recorded_and_shown(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = run_child(SESSION, environment={"IPYTHONDIR": str(tmp_path / "ipython")})
    assert said["nothing"].strip() == "Nothing was recorded since %load_ext tb_memplugin."
    # THEN each model has its run, and the one that was trained last is shown
    name, other = sorted(load("runs"))
    assert other == f"{name}-2"
    assert said["one"].startswith(f"{name}: 8 steps") and "sequential/dense" in said["one"]
    assert said["two"].startswith("in the cell\n") and f"\n{other}: 4 steps" in said["two"]
    assert said["again"].startswith(f"{name}: 16 steps")
    # THEN a notebook gets the object, which it shows as a table
    assert said["shown"][1].startswith(f"{name}: 16 steps") and said["shown"][0].count("steps") <= 1
    assert said["restored"] and said["unknown"]


@pytest.mark.long
def test_with_the_switch_nothing_is_recorded(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = run_child(
        SESSION, environment={"IPYTHONDIR": str(tmp_path / "ipython"), "TB_MEMPLUGIN": "0"}
    )
    assert said["one"].strip() == "TB_MEMPLUGIN=0 is set: nothing is recorded or measured."
    assert not (tmp_path / "runs").exists()
