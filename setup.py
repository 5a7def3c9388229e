"""Packaging; see README.md. The built page is part of the source tree, so that installing needs no Node."""

import pathlib
import re

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).parent
VERSION = re.search(r'__version__ = "([^"]+)"', (HERE / "tb_memplugin" / "version.py").read_text(encoding="utf-8"))
assert VERSION is not None

DOCS = ["furo", "myst-parser", "sphinx"]

setup(
    name="tb_memplugin",
    version=VERSION[1],
    description="Memory tab for TensorBoard: where a TensorFlow training run's device memory goes, by layer and kind",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE", "tb_memplugin/THIRD_PARTY_NOTICES.txt"],
    keywords="tensorflow tensorboard keras gpu memory profiler out-of-memory oom fragmentation",
    packages=find_packages(include=["tb_memplugin", "tb_memplugin.*"]),
    package_data={"tb_memplugin": ["py.typed", "static/*", "server/http_api.md", "THIRD_PARTY_NOTICES.txt"]},
    python_requires=">=3.10",
    install_requires=["tensorboard>=2.16", "numpy>=1.26", "protobuf>=3.20.3", "werkzeug>=2.0"],
    extras_require={
        "docs": DOCS,
        # `to_pandas` of a run.
        "pandas": ["pandas>=2"],
        # What some programs of tests/programs import; without it they are skipped.
        "programs": ["keras-hub", "tf-keras"],
        "record": ["tensorflow>=2.16", "nvidia-ml-py>=12"],
        "test": [
            *DOCS,
            "build",
            "fsspec",
            "hypothesis",
            "ipykernel",
            "mypy",
            "nbclient",
            "pandas",
            "pillow",
            "playwright",
            "pytest",
            "pytest-timeout",
            "pytest-xdist",
            "ruff",
            "tf_keras",
            "twine",
            "types-protobuf",
        ],
        # Needs a newer protobuf than TensorFlow 2.16 and 2.17 allow, so it is apart from the tests.
        "bench": ["xprof; python_version < '3.14'"],
    },
    entry_points={
        "tensorboard_plugins": ["tb_memplugin = tb_memplugin.plugin_loader:MemoryLoader"],
        "console_scripts": ["tb-memplugin = tb_memplugin.__main__:main"],
        "pytest11": ["tb_memplugin = tb_memplugin.pytest_plugin"],
    },
    classifiers=[
        "Development Status :: 4 - Beta",
        "Framework :: Pytest",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: OS Independent",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Scientific/Engineering :: Visualization",
        "Topic :: Software Development :: Debuggers",
        "Typing :: Typed",
    ],
)
