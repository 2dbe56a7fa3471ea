"""The options that several public functions take as those of `make_task`.

Each is added here once; `Bridge.make_task`, which describes them, and `Bridge.schedule` spell them
out. Where a default says something, the function itself spells the option out.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from expirebridge.task.calls.producing import IfExists
from expirebridge.task.durations import Duration
from expirebridge.task.policies import MisfireSpec, RetrySpec


class PolicyOptions(TypedDict, total=False):
    """The options that tasks and the ticks of series have, as `Bridge.make_task` describes them."""

    tags: Sequence[str]
    retry: RetrySpec | None
    timeout: Duration | None
    late_after: Duration | None
    misfire: MisfireSpec | None


class TaskOptions(PolicyOptions, total=False):
    """The options of `make_task`, as `Bridge.make_task` describes them."""

    kwargs: Mapping[str, Any] | None
    at: datetime | None
    id: str | None
    if_exists: IfExists
    max_wait: Duration | None
    window: Duration | None
    private: bool
    on_signal: str | Callable[..., Any] | None
    urgent: bool
