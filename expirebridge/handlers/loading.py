"""Imports the modules of the handlers' folder, and finds the functions that are defined there."""

import importlib
import importlib.util
import inspect
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from expirebridge.errors import HandlersError

logger = logging.getLogger("expirebridge")

Function = Callable[..., Any]

_PACKAGE = Path(__file__).parent


def functions_in(folder: Path) -> Iterator[tuple[str, Function]]:
    """Every public function that is defined under the folder, with the name that tasks give it.

    Raises HandlersError if the folder, or a module in it, cannot be imported.
    """
    root = folder.resolve()
    if not root.is_dir():
        problem = "is not a folder" if root.exists() else "does not exist"
        raise HandlersError(
            f"the handlers' folder {root} {problem}: make it, or name another with --tasks"
        )
    if not root.name.isidentifier():
        raise HandlersError(f"the handlers' folder {root} must be named like a Python package")
    files = list(_module_files(root))
    # The modules are imported under the folder's own name, so that `from tasks.mail import send`
    # in a producer is the same function; what stands beside the folder can be imported by them.
    if str(root.parent) not in sys.path:
        sys.path.insert(0, str(root.parent))
    importlib.invalidate_caches()
    _open_package(root)
    for path in files:
        module = _import(root, path)
        for name, function in vars(module).items():
            if _is_ours(name, function, module):
                yield _name_in(root, path, name), function


def _open_package(root: Path) -> None:
    """Make the folder the package of its name, whatever else on the path has that name.

    Raises HandlersError if a package of that name was imported before.
    """
    present = sys.modules.get(root.name)
    if present is not None:
        places = [Path(place).resolve() for place in getattr(present, "__path__", ())]
        if root not in places:
            raise HandlersError(
                f"the handlers' folder {root} is hidden by {present.__file__ or places[0]}, which "
                f"was imported as {root.name} before: rename the folder"
            )
        return
    file = root / "__init__.py"
    if file.exists():
        spec = importlib.util.spec_from_file_location(root.name, file)
    else:
        spec = ModuleSpec(root.name, None, is_package=True)
    assert spec is not None  # noqa: S101 - for the type checker: a .py file has a loader
    spec.submodule_search_locations = [str(root)]
    package = importlib.util.module_from_spec(spec)
    sys.modules[root.name] = package
    if spec.loader is not None:
        try:
            spec.loader.exec_module(package)
        except (Exception, SystemExit) as error:
            del sys.modules[root.name]
            raise HandlersError(f"{file} does not import:\n{_traceback(error)}") from error


def _module_files(root: Path) -> Iterator[Path]:
    for directory, subdirectories, files in os.walk(root):
        package = Path(directory, "__init__.py")
        if package.exists() and not package.resolve().is_relative_to(root):
            raise HandlersError(f"{package} leads out of the handlers' folder: remove it")
        subdirectories[:] = sorted(
            name for name in subdirectories if _is_loaded(Path(directory, name))
        )
        for file in sorted(files):
            path = Path(directory, file)
            if path.suffix != ".py" or file.startswith("_"):
                continue
            if not path.resolve().is_relative_to(root):
                logger.warning("%s leads out of the handlers' folder: not loaded", path)
            elif not (path.stem.isidentifier() and path.stem.isascii()):
                logger.warning("%s is not named like a module: not loaded", path)
            else:
                yield path


def _is_loaded(directory: Path) -> bool:
    name = directory.name
    if not name.isidentifier() or name.startswith("_"):
        return False
    if not name.isascii():
        logger.warning("no task can name %s, which is not ASCII: not loaded", directory)
    return name.isascii()


def _import(root: Path, path: Path) -> ModuleType:
    name = ".".join((root.name, *path.relative_to(root).with_suffix("").parts))
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise HandlersError(f"{path} does not import:\n{_traceback(error)}") from error
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != path.resolve():
        raise HandlersError(
            f"{path} is hidden by {found}, which Python imports as {name}: rename one of them"
        )
    return module


def _traceback(error: BaseException) -> str:
    """The traceback without the frames of the import machinery, and of this package."""
    shown = traceback.TracebackException.from_exception(error)
    inner = [
        frame
        for frame in shown.stack
        if not frame.filename.startswith("<frozen importlib")
        and frame.filename != importlib.__file__
        and Path(frame.filename).parent != _PACKAGE
    ]
    shown.stack = traceback.StackSummary.from_list(inner)
    return "".join(shown.format(chain=False)).rstrip()


def _is_ours(name: str, value: object, module: ModuleType) -> bool:
    return (
        inspect.isfunction(value)
        and not name.startswith("_")
        and value.__module__ == module.__name__
    )


def _name_in(root: Path, path: Path, function: str) -> str:
    return f"{path.relative_to(root).with_suffix('').as_posix()}.{function}"
