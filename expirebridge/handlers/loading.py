"""Imports the modules of the handlers' folder."""

import importlib
import importlib.util
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Self

from expirebridge.errors import HandlersError, InvalidSetting, InvalidTask
from expirebridge.handlers.django_project import hint_of_project

# The handlers' folder, and the names under which its modules are imported.


@dataclass(frozen=True, slots=True)
class HandlersFolder:
    """The folder of the handlers' modules, and the directory below which their packages begin.

    The folder is always a package. So is each directory above it that has an `__init__.py`, as for
    pytest's import mode `prepend`: a module has the same name here as in a program that is started
    in `app_dir`.
    """

    path: Path
    app_dir: Path
    """The directory that holds the outermost package. It is put on `sys.path`."""

    @classmethod
    def at(cls, folder: Path, app_dir: Path | None = None) -> Self:
        """Describe the folder; without `app_dir`, look for that.

        Raises HandlersError if the folder does not exist, is not below `app_dir`, or if a
        directory between them cannot be the name of a package.
        """
        path = _absolute(folder)
        if not path.is_dir():
            problem = "is not a folder" if path.exists() else "does not exist"
            problem += hint_of_project()
            raise HandlersError(
                f"the handlers' folder {path} {problem}: make it, or name another by "
                "EXPIREBRIDGE_TASKS, or --tasks of the command"
            )
        if app_dir is None:
            found = cls(path, _directory_above_packages(path))
        else:
            found = cls(*_below(path, _absolute(app_dir)))
        found._check_names()
        return found

    @property
    def package(self) -> str:
        """The name under which the folder is imported."""
        return ".".join(self.path.relative_to(self.app_dir).parts)

    def packages(self) -> Iterator[tuple[str, Path]]:
        """The name and the directory of each package, from the outermost to the folder itself."""
        directory, names = self.app_dir, []
        for name in self.path.relative_to(self.app_dir).parts:
            directory /= name
            names.append(name)
            yield ".".join(names), directory

    @property
    def outermost(self) -> Path:
        """The directory of the outermost package, which holds the code that handlers share."""
        return next(directory for _, directory in self.packages())

    def _check_names(self) -> None:
        for _, directory in self.packages():
            if not directory.name.isidentifier():
                what = "the handlers' folder" if directory == self.path else "the directory"
                raise HandlersError(
                    f"{what} {directory} must be named like a Python package, since it is imported "
                    f"as a part of {self.package}"
                )


def _absolute(path: Path) -> Path:
    """The absolute path, with links as they are: Python names a package by its link, too."""
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
    # After a link, `..` may lead elsewhere than the text says.
    return absolute if absolute.resolve() == path.resolve() else path.resolve()


def _directory_above_packages(path: Path) -> Path:
    """The first directory above the folder that is no package."""
    directory = path.parent
    while (directory / "__init__.py").is_file() and directory.name.isidentifier():
        directory = directory.parent
    return directory


def _below(path: Path, app_dir: Path) -> tuple[Path, Path]:
    """Both paths, if the first one is below the second: as they are written, or behind links."""
    for inner, outer in ((path, app_dir), (path.resolve(), app_dir.resolve())):
        if outer in inner.parents:
            return inner, outer
    raise HandlersError(
        f"--app-dir {app_dir}: the handlers' folder {path} is not below it; name the directory in "
        "which the outermost package of your project is"
    )


logger = logging.getLogger("expirebridge")

_PACKAGE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class HandlersModule:
    """A module of the handlers' folder."""

    name: str
    """The module part of task names: its path in the folder, without the suffix."""
    imported: ModuleType


def modules_in(folder: HandlersFolder) -> list[HandlersModule]:
    """Import every public module under the folder.

    Raises HandlersError if a package or a module cannot be imported, or is imported under two
    names.
    """
    files = list(module_files(folder.path))
    if str(folder.app_dir) not in sys.path:
        sys.path.insert(0, str(folder.app_dir))
    importlib.invalidate_caches()
    for package, directory in folder.packages():
        _open_package(package, directory, folder)
    modules = [
        HandlersModule(
            path.relative_to(folder.path).with_suffix("").as_posix(), _import(folder, path)
        )
        for path in files
    ]
    _refuse_second_names(folder)
    return modules


def _open_package(name: str, directory: Path, folder: HandlersFolder) -> None:
    """Import a package, and see that it is the one in this directory. Raises HandlersError."""
    if name not in sys.modules:
        try:
            _import_package(name, directory, folder)
        except (Exception, SystemExit) as error:
            file = directory / "__init__.py"
            raise unimported(file, error) from error
    present = sys.modules[name]
    places = [Path(place).resolve() for place in getattr(present, "__path__", ())]
    if directory.resolve() not in places:
        what = "the handlers' folder" if directory == folder.path else "the package"
        other = getattr(present, "__file__", None) or next(iter(places), "a built-in module")
        raise HandlersError(
            f"{what} {directory} is hidden by {other}, which was imported as {name} "
            "before: rename one of them"
        )


def _import_package(name: str, directory: Path, folder: HandlersFolder) -> None:
    file = directory / "__init__.py"
    if "." in name or (directory != folder.path and not file.exists()):
        importlib.import_module(name)  # inside of a package, or a namespace package
    else:
        _take_name(name, directory, file)


def _take_name(name: str, directory: Path, file: Path) -> None:
    """Make the directory the package of this name, whatever else on the path has that name."""
    if file.exists():
        spec = importlib.util.spec_from_file_location(name, file)
    else:
        spec = ModuleSpec(name, None, is_package=True)
    assert spec is not None  # noqa: S101 - for the type checker: a .py file has a loader
    spec.submodule_search_locations = [str(directory)]
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    if spec.loader is not None:
        try:
            spec.loader.exec_module(package)
        except BaseException:
            del sys.modules[name]
            raise


def _refuse_second_names(folder: HandlersFolder) -> None:
    """Raise HandlersError if a module of the folder was also imported under another name."""
    roots = {folder.path, folder.path.resolve()}
    root_names = {root.name for root in roots}
    for name, module in list(sys.modules.items()):
        # Not by getattr: a lazy module would be imported by it.
        file = getattr(module, "__dict__", {}).get("__file__")
        # A program that embeds a listener may be a file of the folder: `__main__`.
        if file is None or name == "__main__" or f"{name}.".startswith(f"{folder.package}."):
            continue
        # Nearly all of thousands of modules are elsewhere, and need not be parsed as paths.
        if not any(root_name in str(file) for root_name in root_names):
            continue
        for root in roots & set(Path(file).parents):
            ours = ".".join((folder.package, *Path(file).relative_to(root).with_suffix("").parts))
            if ours in sys.modules:
                raise HandlersError(
                    f"{file} is imported twice, as {ours} and as {name}: "
                    f"{_remedy_for(name, Path(file))}"
                )


def _remedy_for(name: str, file: Path) -> str:
    """How to import a file under this name only, if its path allows that."""
    parts = tuple(name.split("."))
    if len(parts) > 1 and file.with_suffix("").parts[-len(parts) :] == parts:
        app_dir = file.parents[len(parts) - 1]
        return f"name the directory in which the outermost package is: --app-dir {app_dir}"
    return "import it under the first name only"


_LEFT_OUT = "%s is named like a test, or like what npm installs: not loaded"
_FOLDERS = {"test", "tests", "node_modules"}


def is_left_out(folders: Sequence[str], module: str = "") -> bool:
    """True for the path of a test, by the names that pytest and Django look for, and of what npm
    installs."""
    is_test = module in {"conftest", "tests"} or module.startswith("test_")
    return is_test or module.endswith("_test") or not _FOLDERS.isdisjoint(folders)


def module_files(root: Path) -> Iterator[Path]:
    """The files of the public modules under a package's directory. Raises HandlersError."""
    inside = root.resolve()
    for directory, subdirectories, files in os.walk(root):
        package = Path(directory, "__init__.py")
        if package.exists() and not package.resolve().is_relative_to(inside):
            raise HandlersError(f"{package} leads out of the handlers' folder: remove it")
        subdirectories[:] = sorted(
            name for name in subdirectories if _is_loaded(Path(directory, name))
        )
        for file in sorted(files):
            path = Path(directory, file)
            if path.suffix != ".py" or file.startswith("_"):
                continue
            if is_left_out((), path.stem):
                logger.info(_LEFT_OUT, path)
            elif not path.resolve().is_relative_to(inside):
                logger.warning("%s leads out of the handlers' folder: not loaded", path)
            elif not (path.stem.isidentifier() and path.stem.isascii()):
                logger.warning("%s is not named like a module: not loaded", path)
            else:
                yield path


def _is_loaded(directory: Path) -> bool:
    name = directory.name
    if is_left_out([name]):
        logger.info(_LEFT_OUT, directory)
        return False
    if not name.isidentifier() or name.startswith("_"):
        return False
    if not name.isascii():
        logger.warning("no task can name %s, which is not ASCII: not loaded", directory)
    return name.isascii()


def _import(folder: HandlersFolder, path: Path) -> ModuleType:
    name = ".".join((folder.package, *path.relative_to(folder.path).with_suffix("").parts))
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise unimported(path, error) from error
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != path.resolve():
        raise HandlersError(
            f"{path} is hidden by {found}, which Python imports as {name}: rename one of them"
        )
    return module


def unimported(path: Path, error: BaseException, hint: str = "") -> HandlersError:
    """The reason for a failed import: a line for a refused value, otherwise a traceback."""
    if isinstance(error, InvalidTask | InvalidSetting) and (place := _place_of(error, path)):
        return HandlersError(f"{path} does not import: {place}: {error}")
    return HandlersError(f"{path} does not import:\n{_traceback(error)}{hint}")


def _place_of(error: BaseException, path: Path) -> str | None:
    """The line that gave this package the value; with its file, if that is not `path`."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        generated = frame.filename == "<string>"  # such as the __init__ of a dataclass
        if not generated and _PACKAGE.parent not in Path(frame.filename).parents:
            file = "" if Path(frame.filename) == path else f"{frame.filename}, "
            return f"{file}line {frame.lineno}"
    return None


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
