"""Puts the helpers beside the tests on the path."""

import pathlib
import sys

import pytest
from hypothesis import settings

# How long an example takes says more about the machine's load than about the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

for folder in ("integration",):
    sys.path.insert(0, str(pathlib.Path(__file__).parent / folder))

LONGEST_FIRST = (
    "integration/test_scenarios.py",
    "integration/test_trainings.py",
    "integration/test_recorder.py",
    "integration/test_probe.py",
    "integration/test_real_stores.py",
    "integration/test_oom.py",
    "hostile/test_crafted.py",
    "integration/test_remat.py",
    "integration/test_documented_code.py",
    "integration/test_tutorial.py",
    "integration/test_docs.py",
    "integration/test_plan.py",
    "integration/test_demo.py",
    "integration/test_run_command.py",
    "integration/test_leaks.py",
    "integration/test_recorder_life.py",
    "integration/test_programs.py",
    "integration/test_source_lines.py",
    "integration/test_held_in_runs.py",
    "integration/test_memory_maps.py",
    "integration/test_keras_2.py",
    "integration/test_worker_processes.py",
    "hostile/test_generated.py",
    # The browser's come after all others: their servers and Chromium stay until a process ends.
    "browser/test_one_value.py",
    "browser/test_in_tensorboard.py",
    "browser/test_staying.py",
    "browser/test_step.py",
    "browser/test_keyboard.py",
    "browser/test_answers.py",
    "browser/test_page.py",
    "browser/test_accessibility.py",
)
"""Files that take longest: processes that share the files end at about the same time if these come
first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = pathlib.Path(__file__).parent
    places = {tests / name: place for place, name in enumerate(LONGEST_FIRST)}
    browser = tests / "browser"
    items.sort(key=lambda item: (browser in item.path.parents, places.get(item.path, len(places))))
