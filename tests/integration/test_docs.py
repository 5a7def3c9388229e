"""The documentation's site as `make docs` builds it, with a report of recorded runs; each of its
links is followed."""

import importlib.util
import pathlib
import re
import subprocess
import sys
import types
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urlsplit
from xml.etree import ElementTree

import pytest
from PIL import Image

import tb_memplugin

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "docs" / "site" / "build.py"
LARGEST_PICTURE = 1_500_000
MOST_WORDS = {
    ("README.md", "docs/*.md"): 21_800,
    ("docs/development/*.md",): 13_000,
    ("tb_memplugin/server/http_api.md",): 5_600,
}
"""Pages to the words that they may have in all, as `wc -w` counts: with code, tables and what
commands write.

These are what was reached. Lower them to 15,000, 10,000 and 4,000 with the pages; raise them only
on purpose."""


class Page(HTMLParser):
    """Targets of a page: where its links lead, what it loads, its anchors and its text."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = set()
        self.text = ""
        self._silent = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        elif "src" in given or tag == "link" or "srcset" in given:
            self.loaded.update(
                given[name].split(" ")[0] for name in ("src", "href", "srcset") if name in given
            )
        self._silent = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._silent = False

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The site, with a report of the runs that the tests keep."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, str(BUILD), str(ROOT / "tests" / "fixtures" / "runs"), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def pages(site: pathlib.Path) -> dict[pathlib.Path, Page]:
    return {
        path: Page(path) for path in site.rglob("*.html") if path != site / "sample_report.html"
    }


def build_module() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("build_docs", BUILD)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_every_link_leads_somewhere(site: pathlib.Path, pages: dict[pathlib.Path, Page]) -> None:
    followed, broken = 0, []
    for path, page in pages.items():
        for link in page.links | page.loaded:
            place, anchor = urldefrag(link)
            if urlsplit(place).scheme:
                continue
            target = (path.parent / unquote(urlsplit(place).path)).resolve() if place else path
            followed += 1
            known = pages[target].anchors if target in pages else None
            if not target.is_file() or (
                anchor and known is not None and unquote(anchor) not in known
            ):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []
    assert followed > 500


@pytest.mark.long
def test_pages_load_nothing_from_elsewhere(pages: dict[pathlib.Path, Page]) -> None:
    assert {
        link for page in pages.values() for link in page.loaded if urlsplit(link).netloc
    } == set()


@pytest.mark.long
def test_every_page_of_the_documentation_is_there(
    site: pathlib.Path, pages: dict[pathlib.Path, Page]
) -> None:
    for source in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("tb_memplugin/server/*.md"),
    ]:
        assert site / source.relative_to(ROOT).with_suffix(".html") in pages
    start = re.search(r'url=([^"]+)"', (site / "index.html").read_text(encoding="utf-8"))
    assert start is not None and site / start[1] in pages


@pytest.mark.long
def test_the_reference_has_every_public_name_and_field(
    site: pathlib.Path, pages: dict[pathlib.Path, Page]
) -> None:
    page = pages[site / "docs" / "reference.html"]
    public = {f"tb_memplugin.{name}" for name in tb_memplugin.__all__ if not name.startswith("__")}
    methods = {
        f"tb_memplugin.MemoryRecorder.{name}" for name in ("step", "watch", "flush", "close")
    }
    names = {
        "module-tb_memplugin.summary" if name.endswith(".summary") else name
        for name in public | methods
    }
    assert names <= page.anchors
    for value in (tb_memplugin.Run, tb_memplugin.Snapshot):
        assert all(re.search(rf"\b{name}\b", page.text) for name in value.__dataclass_fields__)
    # What Markdown or reStructuredText did not turn into a format would stand in the text.
    assert re.findall(r".*(?:`|\*\*|Args:|Attributes:).*", page.text) == []


@pytest.mark.long
def test_the_sample_report_is_shown_and_holds_the_runs(
    site: pathlib.Path, pages: dict[pathlib.Path, Page]
) -> None:
    assert "../sample_report.html" in pages[site / "docs" / "sample_report.html"].loaded
    report = (site / "sample_report.html").read_text(encoding="utf-8")
    assert all(name in report for name in ("small", "out_of_memory"))


@pytest.mark.long
def test_links_that_lead_nowhere_fail_the_build(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pages, out, beside = tmp_path / "pages", tmp_path / "out", tmp_path / "beside"
    pages.mkdir()
    beside.mkdir()
    links = "[page](no_page.md), [anchor](#no-anchor), {py:class}`tb_memplugin.NoClass`"
    (pages / "README.md").write_text(f"# Title\n\n{links}\n", encoding="utf-8")
    with pytest.raises(subprocess.CalledProcessError):
        build_module().build(pages, beside, out)
    warnings = capfd.readouterr().err
    assert all(name in warnings for name in ("no_page.md", "no-anchor", "tb_memplugin.NoClass"))


def test_make_docs_and_make_animation_run_these_scripts() -> None:
    for target, script in {
        "docs": "docs/site/build.py",
        "animation": "tests/browser/animation.py",
    }.items():
        printed = subprocess.run(
            ["make", "--dry-run", target], check=True, capture_output=True, text=True, cwd=ROOT
        )
        assert script in printed.stdout


@pytest.mark.parametrize("patterns", MOST_WORDS, ids=lambda patterns: patterns[-1])
def test_the_pages_stay_short(patterns: tuple[str, ...]) -> None:
    pages = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    words = {path.name: len(path.read_text(encoding="utf-8").split()) for path in pages}
    assert all(words.values())
    assert 0 < sum(words.values()) <= MOST_WORDS[patterns], words


def test_a_step_is_drawn_with_the_values_of_its_run(tmp_path: pathlib.Path) -> None:
    # GIVEN a recorded run with the timeline of a training step
    logdir = ROOT / "tests" / "fixtures" / "runs"
    run = tb_memplugin.load(logdir)["small"]
    timeline = next(one for one in run.timelines if one.phase == "train" and one.bands)
    # WHEN it is drawn as the pages' pictures are
    script = ROOT / "docs" / "site" / "step_picture.py"
    command = [sys.executable, str(script), str(logdir), "small", str(timeline.step), str(tmp_path)]
    subprocess.run(command, check=True, timeout=120)
    # THEN it names its own peak, and each of the pages' pictures has the same form, light and dark
    peak = f"peak {timeline.in_use_bytes / 2**20:.0f} MiB"
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}-{scheme}.svg" for name in ("step", "categories") for scheme in ("light", "dark")
    }
    page = (ROOT / "docs" / "understand_the_numbers.md").read_text(encoding="utf-8")
    for path in tmp_path.iterdir():
        drawn, kept = (
            ElementTree.fromstring(file.read_text(encoding="utf-8"))
            for file in (path, ROOT / "docs" / "images" / path.name)
        )
        assert f'"images/{path.name}"' in page
        assert drawn.attrib["viewBox"].split()[2] == kept.attrib["viewBox"].split()[2]
        texts = [element.text or "" for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
        assert any(peak in text for text in texts) == path.name.startswith("step")


def test_the_readme_shows_an_animated_picture_light_and_dark() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for scheme in ("light", "dark"):
        path = ROOT / "docs" / "images" / f"tour-{scheme}.webp"
        assert f'"docs/images/{path.name}"' in readme
        assert path.stat().st_size < LARGEST_PICTURE
        with Image.open(path) as picture:
            assert picture.is_animated and picture.n_frames > 20 and picture.width >= 1280
