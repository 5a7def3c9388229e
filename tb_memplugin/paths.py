"""Paths that the program gives once and that are used later: it may change its directory in between."""

import os


def absolute(path: str) -> str:
    """A local path as it is from every working directory; a URL as it is."""
    return path if "://" in path else os.path.abspath(path)
