"""Finds the files that belong to expirebridge: in the installed package, or in its repository."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


def redis_conf() -> Path:
    """The server's configuration."""
    return _find("redis.conf")


def example_tasks() -> Path:
    """The folder of example handlers, which the demo runs."""
    return _find("tasks")


def _find(name: str) -> Path:
    installed = _PACKAGE / "data" / name
    return installed if installed.exists() else _PACKAGE.parent / name
