"""The handlers' folder, and the names under which its modules are imported."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from expirebridge.errors import HandlersError


@dataclass(frozen=True, slots=True)
class HandlersFolder:
    """Where the handlers' modules are, and below which directory their packages begin.

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
            raise HandlersError(
                f"the handlers' folder {path} {problem}: make it, or name another with --tasks"
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
