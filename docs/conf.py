"""Sphinx: the site that `make docs` builds from the Markdown of this repository and the docstrings.

The source directory is the repository's root, so that a link between two pages is the same here and
on a code forge.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "site")]

from tb_memplugin.version import __version__  # noqa: E402

project = "tb_memplugin"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "pages", "docstrings"]

root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/*/*.md", "tb_memplugin/server/*.md"]
exclude_patterns = [".*", "build", "demo", "dist", "frontend", "runs", "tests", "**/__pycache__"]
source_suffix = {".md": "markdown"}

# Links: any that leads nowhere is a warning, and `make docs` fails on warnings.
nitpicky = True
# Other projects' types: their inventories would have to be downloaded.
nitpick_ignore_regex = [("py:.*", r"(?!tb_memplugin\b).*")]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_inherit_docstrings = False  # those of Keras on its hooks
maximum_signature_line_length = 80
napoleon_numpy_docstring = False
default_role = "code"

html_theme = "furo"
html_title = "tb_memplugin"
html_static_path = ["site/static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
