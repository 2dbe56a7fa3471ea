"""Django's own tests of backends for tasks pass with ours: see djangos_own/run.py.

`.ci/pythons` brings Django's source distribution, of the version that is installed.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.django.djangos_own.run import LEFT_OUT
from tests.kit.processes import ROOT

FOLDER = os.environ.get("EXPIREBRIDGE_TEST_DJANGO")
LEAST = 60
"""Tests of Django 6.0 and later that run; those that are left out have their reasons there."""


@pytest.mark.skipif(FOLDER is None, reason="no EXPIREBRIDGE_TEST_DJANGO: .ci/pythons sets it")
def test_djangos_own_tests_pass(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.django.djangos_own.run", str(FOLDER)],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ran = int(done.stderr.partition("Ran ")[2].split()[0])
    assert ran >= LEAST
    written = "".join(file.read_text() for file in (tmp_path / "tasks").glob("test_*.py"))
    assert [name for name in LEFT_OUT if f"def {name}(" not in written] == []
