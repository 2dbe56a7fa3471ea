"""Takes a room out of a copy of the package, and runs the spine's tests there.

`python -m tests.kit.without moving` deletes the folder of `moving`, its line in `CAPABILITIES`,
and those that name it at the heads, where bridges and `@handler` are composed. What may import
the room goes along: `GO_ALONG` in `tests/project/taken_out.py` names it.
Then it imports all other modules, looks for scripts that include what is gone, and runs the quick
tests of `tests/spine` and `tests/listener`, but for those that use the room themselves.
"""

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import expirebridge.testing
from tests.kit.processes import ROOT
from tests.project.taken_out import GO_ALONG, USED_IN

PACKAGE = "expirebridge"
HEADS = ("capabilities.py", "bridge.py", "marking.py")
"""Where rooms are named."""
PYTHON = ".venv/bin/python"
TESTED = ("tests/spine", "tests/listener")
PUBLIC = {
    f"{offering.__name__}.{name}": f"{PACKAGE}.{module}"
    for offering in (expirebridge, expirebridge.testing)
    for module, names in vars(offering)["_NAMES"].items()
    for name in names.split()
}
"""The module of each name that the package, or its testing kit, offers."""

_IMPORT_ALL = f"""
import importlib, json, pkgutil
import {PACKAGE}
found = pkgutil.walk_packages({PACKAGE}.__path__, "{PACKAGE}.", onerror=lambda _: None)
names = [module.name for module in found if not module.name.endswith("__main__")]
failed = {{}}
for name in names * 2:  # the page of a room may be imported once the dashboard is
    try:
        importlib.import_module(name)
        failed.pop(name, None)
    except ImportError as error:
        failed[name] = str(error)
    except Exception:
        assert name.startswith("{PACKAGE}.contrib"), name  # Django asks for settings first
print(json.dumps(failed))
"""


def imported_by(source: str) -> set[str]:
    """Every module from which a source imports, and `module.name` for each name of one.

    For public names of the package, it is the module in which they stand.
    """
    found = set[str]()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(module), names=names):
                found |= {module, *(f"{module}.{alias.name}" for alias in names)}
    return found | {PUBLIC[name] for name in found & PUBLIC.keys()}


def without_room(source: str, room: str) -> str:
    """A source without its imports from a room, and without the lines that use these names."""
    names, dropped = {f'"{room}"'}, set[int]()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{PACKAGE}.{room}."):
            names |= {alias.asname or alias.name for alias in node.names}
            dropped |= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return "".join(
        line
        for number, line in enumerate(source.splitlines(keepends=True), 1)
        if number not in dropped and not names & {*re.findall(r'"\w+"|\w+', line)}
    )


def taken_with(room: str) -> set[str]:
    """A room, and all that goes along with it, as dotted names."""
    gone = {room}
    for along in GO_ALONG.get(room, ()):
        gone |= taken_with(along)
    return gone


@contextmanager
def taken_out(room: str) -> Iterator[Path]:
    """A copy of the repository without a room and what goes along, and without their tests."""
    with tempfile.TemporaryDirectory(prefix=f"without-{room}-") as place:
        copy = Path(place)
        for path in ROOT.iterdir():
            if path.name in {PACKAGE, "tests"}:
                ignored = shutil.ignore_patterns("__pycache__", "node_modules")
                shutil.copytree(path, copy / path.name, ignore=ignored)
            elif path.name not in {".git", ".venv"}:
                (copy / path.name).symlink_to(path)
        _make_environment(copy / ".venv", copy)
        for part in taken_with(room):
            _delete(copy, part)
        yield copy


def _delete(copy: Path, part: str) -> None:
    place = copy / PACKAGE / part.replace(".", "/")
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.with_suffix(".py").unlink()
    shutil.rmtree(copy / "tests" / part, ignore_errors=True)
    for path in (copy / PACKAGE / head for head in HEADS):
        path.write_text(without_room(path.read_text(), part))


def _make_environment(environment: Path, copy: Path) -> None:
    """An environment with the packages of this one, but for the package itself: that is the copy.

    Processes that tests start find it there, whatever variables they have.
    """
    venv.create(environment, symlinks=True)
    [packages] = environment.glob("lib/*/site-packages")
    here = Path(sysconfig.get_path("purelib"))
    (packages / "copy.pth").write_text(f"{copy}\n{here}\n")
    shutil.copy(here / "no_metrics.pth", packages)
    (environment / "fast").symlink_to(ROOT / ".venv" / "fast")


def unimportable(copy: Path) -> dict[str, str]:
    """The modules of a copy that cannot be imported, with the error of each."""
    ran = subprocess.run(
        [copy / PYTHON, "-c", _IMPORT_ALL], cwd=copy, capture_output=True, text=True, check=True
    )
    failed: dict[str, str] = json.loads(ran.stdout)
    return {name: f"{name} cannot be imported: {error}" for name, error in failed.items()}


_INCLUDE = re.compile(r"^-- include (\w+)$", re.MULTILINE)


def unreadable(copy: Path) -> list[str]:
    """The Lua files of a copy that include what is not there."""
    files = [*(copy / PACKAGE).rglob("*.lua")]
    shared = {path.stem for path in files if path.parent.name == "include"}
    return sorted(
        f"{path.relative_to(copy / PACKAGE)} includes {name}"
        for path in files
        for name in _INCLUDE.findall(path.read_text())
        if name not in shared
    )


def users_of(room: str, copy: Path) -> set[Path]:
    """The test modules of the spine that use a room, or what goes along with it.

    Some do by way of another module of tests.
    """
    modules = {
        ".".join(path.relative_to(copy).with_suffix("").parts): imported_by(path.read_text())
        for path in (copy / "tests").rglob("*.py")
    }
    gone_parts = taken_with(room)
    begins = tuple(f"{top}.{part}." for top in (PACKAGE, "tests") for part in gone_parts)
    gone = {
        name
        for name, imports in modules.items()
        if any(f"{imported}.".startswith(begins) for imported in imports)
    }
    while added := {name for name, imports in modules.items() if imports & gone} - gone:
        gone |= added
    paths = {copy / f"{name.replace('.', '/')}.py" for name in gone if name in modules}
    return {path for path in paths if path.relative_to(copy).parent.as_posix() in TESTED}


def run_spine(room: str, copy: Path) -> int:
    """Run the tests of the spine that do not use the room; returns pytest's exit code."""
    ignored = [f"--ignore={path.relative_to(copy)}" for path in sorted(users_of(room, copy))]
    unselected = [
        f"--deselect={test}" if "::" in test else f"--ignore={test}"
        for test in sorted(USED_IN.get(room, ()))
    ]
    print(f"without {room}:", *ignored, *unselected, flush=True)  # noqa: T201
    return subprocess.run(
        [copy / PYTHON, "-m", "pytest", "-q", "-n", "4", *TESTED, *ignored, *unselected],
        cwd=copy,
        env=os.environ | {"EXPIREBRIDGE_TEST_PART": "quick"},
        check=False,
    ).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("room")
    room = parser.parse_args().room
    with taken_out(room) as copy:
        faults = [*unimportable(copy).values(), *unreadable(copy)]
        for fault in faults:
            print(fault)  # noqa: T201 - what it is for
        if faults:
            return 1
        return run_spine(room, copy)


if __name__ == "__main__":
    sys.exit(main())
