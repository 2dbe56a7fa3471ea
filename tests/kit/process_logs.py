"""The logs of processes that tests start: what a failed test prints of them."""

from pathlib import Path

_files: dict[Path, None] = {}


def noted(file: Path) -> Path:
    """The same file, to be printed if the test fails while something is logged into it."""
    _files[file] = None
    return file


def logs_since(moment: float) -> list[Path]:
    """Those into which something was logged since a moment of the local clock."""
    for file in list(_files):
        if not file.exists():
            del _files[file]
    return [file for file in _files if file.stat().st_mtime >= moment]
