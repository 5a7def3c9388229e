"""The command line: what the terminal says of recorded runs.

Arguments come in; tables, JSON, files or the page's server go out, with an exit code, and user
errors in one line. Only the console script, ``python -m tb_memplugin`` and IPython's extension call
it. The face imports almost nothing, because ``run`` starts the user's program before NumPy and
TensorFlow are imported."""

from tb_memplugin.cli.commands import main
