"""The check of the functions that clients in other languages call: each node needs them."""

from expirebridge.checks.finding import Finding, ok, warning
from expirebridge.store import function_library, functions

_NONE = ""


def check_library(found: dict[str, str | None]) -> list[Finding]:
    """Whether the servers that were asked have the same functions as this version, or none has any.

    `found` is the version at each, by its address: "" without functions, None if it cannot have
    any. The address of a server that is the only one is "".
    """
    versions = {node: version for node, version in found.items() if version is not None}
    if not any(versions.values()):
        return []
    mine = functions.version()
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
