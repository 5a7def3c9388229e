"""What pyproject.toml cannot state: the README and the links as a package index shows them.

An index has no repository beside its page. With REPOSITORY_URL, which the release workflow sets to
the repository that it runs in, the README's links and pictures lead there; without it, links are
their text and pictures are left out.
"""

import os
import pathlib
import re

from setuptools import setup

HERE = pathlib.Path(__file__).parent
REPOSITORY = os.environ.get("REPOSITORY_URL", "").rstrip("/")
RELATIVE = r"(?!https?:|mailto:|#)"


def readme() -> str:
    """The README without a link that leads nowhere on a package index."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    link, picture = rf"\[([^][]*)\]\({RELATIVE}([^()]+)\)", rf'((?:src|srcset)=")({RELATIVE}[^"]+)'
    if not REPOSITORY:
        return re.sub(link, r"\1", re.sub(r"<picture>.*?</picture>\n+", "", text, flags=re.DOTALL))
    (version,) = re.findall(
        r'__version__ = "(.+)"', (HERE / "tb_memplugin" / "version.py").read_text(encoding="utf-8")
    )
    text = re.sub(link, rf"[\1]({REPOSITORY}/blob/v{version}/\2)", text)
    return re.sub(picture, rf"\1{REPOSITORY}/raw/v{version}/\2", text)


PLACES = {
    "Source": "",
    "Documentation": "/tree/main/docs",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
}
setup(
    long_description=readme(),
    long_description_content_type="text/markdown",
    project_urls={name: REPOSITORY + place for name, place in PLACES.items()} if REPOSITORY else {},
)
