"""Builds the site: a report of recorded runs, then the pages. Any warning is an error.

usage: python docs/site/build.py LOGDIR OUTDIR
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
START = "README.html"
"""The page at the site's root. The source files keep the names they have on a code forge."""
REDIRECT = f"""<!DOCTYPE html>
<meta charset="utf-8"><title>tb_memplugin</title>
<meta http-equiv="refresh" content="0; url={START}">
<p><a href="{START}">tb_memplugin: a Memory tab for TensorBoard</a></p>
"""
PICTURES = ("docs/images", "docs/screenshots")
"""Folders of pictures that pages show in HTML's ``<picture>``, which Sphinx does not look into."""


def write_beside_pages(logdir: str, folder: pathlib.Path) -> None:
    """Writes the files that the site contains besides its pages."""
    command = [
        sys.executable,
        "-m",
        "tb_memplugin",
        "report",
        logdir,
        "-o",
        str(folder / "sample_report.html"),
    ]
    subprocess.run(command, check=True, cwd=ROOT)
    (folder / "index.html").write_text(REDIRECT, encoding="utf-8")
    for pictures in PICTURES:
        shutil.copytree(ROOT / pictures, folder / pictures)


def build(source: pathlib.Path, folder: pathlib.Path, out: pathlib.Path) -> None:
    """Builds the pages below `source` and copies the files of `folder` beside them.

    Raises:
        CalledProcessError: Sphinx failed, or printed a warning.
    """
    strict = ("--fail-on-warning", "--nitpicky", "--keep-going", "--quiet", "--fresh-env")
    places = ("--conf-dir", ROOT / "docs", "-D", f"html_extra_path={folder}", source, out)
    subprocess.run([sys.executable, "-m", "sphinx", *strict, *places], check=True)


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    logdir, out = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        write_beside_pages(str(logdir), pathlib.Path(folder))
        try:
            build(ROOT, pathlib.Path(folder), out)
        except subprocess.CalledProcessError as error:
            sys.exit(error.returncode)
    print(out / "index.html")


if __name__ == "__main__":
    main()
