"""The arguments of ``tb-memplugin view``, and the document that it serves. An integration test
starts it."""

import pathlib
import re
import socket
import types
import webbrowser
import zipfile

import pytest

from tb_memplugin.cli import main, view
from tb_memplugin.server import StaticFiles


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """What the command line starts instead of a server; the wait for Ctrl+C ends at once."""
    calls: list[tuple[str, str, int]] = []

    def start(*arguments: object) -> str:
        calls.append(arguments)  # type: ignore[arg-type]
        return "http://localhost:1234/"

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tb_memplugin.cli.view.start", start)
    monkeypatch.setattr("tb_memplugin.cli.view.time", types.SimpleNamespace(sleep=interrupted))
    return calls


def test_it_listens_on_localhost_by_default(started, capsys) -> None:
    assert main(["view", "runs"]) == 0
    assert started == [("runs", "localhost", 6007)]
    assert capsys.readouterr().out == (
        "Memory tab of runs (press Ctrl+C to stop):\nhttp://localhost:1234/\n"
    )


def test_host_and_port_are_passed_on_and_the_browser_is_opened_only_if_asked(
    started, monkeypatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert main(["view", "runs", "--host", "::1", "--port", "0"]) == 0
    assert (started, opened) == ([("runs", "::1", 0)], [])
    assert main(["view", "runs", "--open"]) == 0
    assert opened == ["http://localhost:1234/"]


@pytest.mark.parametrize("port", ["-1", "65536", "6007.5", "http", "٦", ""])
def test_a_port_is_a_number_up_to_65535(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["view", "runs", "--port", port])
    assert ended.value.code == 2
    assert f"port must be an integer from 0 to 65535. Received: {port!r}" in capsys.readouterr().err


def test_a_busy_port_is_told(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["view", str(tmp_path), "--port", str(port)]) == 2
    assert capsys.readouterr().err == (
        f"tb-memplugin: cannot listen on host localhost, port {port}: address already in use; "
        "pass another --port (0 takes a free one) or --host\n"
    )


def test_the_document_starts_the_built_page_without_a_script_inside() -> None:
    with zipfile.ZipFile(view.assets()) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    assert sorted(files) == ["index.html", "start.js"]
    assert re.findall(r"<script[^>]*>(.*?)</script>", files["index.html"]) == [""]
    module = re.findall(r'from "\./data/plugin/tb_memplugin/(.+?)"', files["start.js"])
    assert set(module) <= StaticFiles().names and module == ["index.js"]
