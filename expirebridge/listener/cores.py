"""The number of cores that this process may use."""

import math
import os
from pathlib import Path, PurePosixPath

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")


def usable_cores() -> int:
    """The cores that the scheduler lets this process use, or its container's share if that is less.

    A share of 1.5 cores counts as 2. Where the system does not report one of the two, the other
    counts; a share is read from cgroups of version 2.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    share = _share(_OWN_GROUP, _GROUPS)
    return max(1, math.ceil(share)) if share < cores else cores


def _share(own_group: Path, groups: Path) -> float:
    """The cores that this process's group, or any group around it, may use at most."""
    try:
        lines = own_group.read_text().splitlines()
    except OSError:
        return math.inf
    shares = [math.inf]
    for line in lines:
        number, _, path = line.partition(":")
        if number == "0":  # version 2: `0::/its/path`
            group = PurePosixPath(path.lstrip(":/"))
            shares += [_share_of(groups / each) for each in (group, *group.parents)]
    return min(shares)


def _share_of(group: Path) -> float:
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf
