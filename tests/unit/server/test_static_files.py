"""The page's files: only known names are served."""

import gzip
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_memplugin.errors import NotFoundError
from tb_memplugin.server.static_files import STATIC_DIRECTORY, StaticFiles


@pytest.fixture
def page(tmp_path: pathlib.Path) -> StaticFiles:
    directory = tmp_path / "static"
    (directory / "inner").mkdir(parents=True)
    (directory / "index.js").write_bytes(b"export function render() {}")
    (directory / "style.css").write_bytes(b"body {}")
    (directory / ".gitattributes").write_bytes(b"* generated")
    (directory / "inner" / "x.js").write_bytes(b"inner")
    (tmp_path / "secret.js").write_bytes(b"secret")
    return StaticFiles(directory)


def test_the_files_of_the_page_are_served_with_their_types(page: StaticFiles) -> None:
    assert page.names == {"index.js", "style.css"}
    assert page.read("index.js") == (b"export function render() {}", "text/javascript")
    assert page.read("style.css") == (b"body {}", "text/css")


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "/",
        "../secret.js",
        "..%2fsecret.js",
        "..\\secret.js",
        "/etc/passwd",
        "inner/x.js",
        "inner",
        "./index.js",
        "index.js/",
        "INDEX.JS",
        ".gitattributes",
        "index.js\x00.css",
        "%2e%2e/secret.js",
        "....//secret.js",
    ],
)
def test_anything_else_is_not_there(page: StaticFiles, name: str) -> None:
    with pytest.raises(NotFoundError, match="has no file"):
        page.read(name)


@given(st.text(max_size=30))
def test_no_name_reaches_a_file_that_is_not_of_the_page(name: str) -> None:
    page = StaticFiles(pathlib.Path(__file__).parent)
    if name not in page.names:
        with pytest.raises(NotFoundError):
            page.read(name)


def test_a_page_that_was_not_built_has_no_files(tmp_path: pathlib.Path) -> None:
    assert StaticFiles(tmp_path / "missing").names == frozenset()


def test_the_package_says_where_its_page_is() -> None:
    assert STATIC_DIRECTORY.parts[-2:] == ("tb_memplugin", "static")


def test_the_pages_script_is_small() -> None:
    """Compressed, it has at most 150 KB."""
    script = (STATIC_DIRECTORY / "index.js").read_bytes()
    assert len(gzip.compress(script, 9)) <= 150_000
