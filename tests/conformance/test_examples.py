"""Each file in examples/ does what it says."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conformance import clients
from tests.conformance.stage import Stage
from tests.kit.processes import COMMAND

FOLDER = Path(__file__).parents[2] / "examples"
PROGRAMS = {"py": COMMAND[0], "sh": "sh", "js": "node", "php": "php"}
MODULES = clients.HERE / "node_modules"


def test_every_example_is_run() -> None:
    files = [path for path in FOLDER.iterdir() if path.is_file()]
    assert {path.suffix[1:] for path in files} == {*PROGRAMS, "md"}


def lacking() -> str:
    """What is not here that an example needs."""
    if not MODULES.exists():
        return "ioredis: make clients"
    for program in PROGRAMS.values():
        if shutil.which(program) is None:
            return program
    told = subprocess.check_output(["php", "-r", "echo extension_loaded('redis');"])
    return "" if told else "php-redis"


def test_each_example_makes_its_two_tasks_and_they_run(stage: Stage, shas: object) -> None:
    if stage.version < (7,):
        return  # there are no functions
    if lack := lacking():
        pytest.skip(f"needs {lack}")
    surroundings = os.environ | {"EXPIREBRIDGE_URL": stage.url, "NODE_PATH": str(MODULES)}
    running = [
        subprocess.Popen(
            [program, FOLDER / f"make_task.{language}"],
            env=surroundings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for language, program in PROGRAMS.items()
    ]
    for program in running:
        told, complained = program.communicate()
        assert (program.returncode, complained) == (0, "")
        ids = told.split()
        assert len(ids) == 2
        for id in ids:
            assert stage.ran(id).args == [42, "hi"]
