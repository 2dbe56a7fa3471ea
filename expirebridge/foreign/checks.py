"""The check of the functions that clients in other languages call: each node needs them."""

from collections.abc import Mapping, Sequence

from expirebridge.checks.finding import Finding, ServersCheck, ok, warning
from expirebridge.foreign import function_library
from expirebridge.settings import Settings

_NONE = ""


def checks(_settings: Settings, _max_overdue: float) -> Sequence[ServersCheck]:
    """Give what the doctor asks each server."""
    return [ServersCheck(ask=function_library.find_version, compare=check_library)]


def check_library(found: Mapping[str, str | None]) -> list[Finding]:
    """Check that the given servers have the functions of this version, or that none has any.

    `found` is the version at each, by its address: "" without functions, None if it cannot have
    any. The address of a server that is the only one is "".
    """
    versions = {node: version for node, version in found.items() if version is not None}
    if not any(versions.values()):
        return []
    mine = function_library.version()
    others = dict[str, list[str]]()
    for node, version in versions.items():
        if version != mine:
            others.setdefault(version, []).append(node)
    if not others:
        return [ok("library", f"the functions of expirebridge {mine}{_at_all(versions)}")]
    told = "; ".join(_told(version, nodes) for version, nodes in others.items())
    newest = any(function_library.is_newer(version, mine) for version in others)
    return [
        warning(
            "library",
            f"functions for other languages: {told}; this is {mine}",
            "expirebridge functions load" + (", with the newest expirebridge" if newest else ""),
        )
    ]


def _told(version: str, nodes: list[str]) -> str:
    what = "none" if version == _NONE else f"those of version {version}"
    return f"{what} at {', '.join(nodes)}" if nodes != [""] else what


def _at_all(versions: dict[str, str]) -> str:
    return f" at all {len(versions)} nodes" if "" not in versions else ""
