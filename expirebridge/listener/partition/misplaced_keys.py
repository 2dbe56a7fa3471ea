"""Misplaced keys: trigger keys whose tag is not that of their partition, or that have none.

They are not run: no client would find their tasks by their ids. They are named instead.
"""

import logging
from collections import OrderedDict

from expirebridge.hooks import Hooks, Misplaced
from expirebridge.task.keys import InvalidKey, TriggerKey, parse_key
from expirebridge.task.partitions import PartitionLayout
from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")

REMEMBERED = 1000
"""How many of the last ones are known, so that each is named once, however often it is set."""


class MisplacedKeys:
    """Reports each misplaced key once, with its right tag, without arguments."""

    def __init__(self, layout: PartitionLayout, hooks: Hooks) -> None:
        self._layout = layout
        self._hooks = hooks
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()

    def hear(self, name: bytes) -> None:
        """Report a key that is in no partition, or not in that of its id."""
        try:
            key = parse_key(name)
        except InvalidKey:
            return  # where it belongs cannot be said
        if key is not None and self._is_news(key):
            self._report(key)

    def _is_news(self, key: TriggerKey) -> bool:
        known = (key.hash_tag, key.id)
        is_news = known not in self._known
        self._known[known] = None
        self._known.move_to_end(known)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return is_news

    def _report(self, key: TriggerKey) -> None:
        right = self._layout.hash_tag_of(self._layout.partition_of(key.id))
        logger.error(
            "a foreign key of task %s is not run: its name begins with %s, and must begin with %s: "
            "%s%s:?%s?...",
            key.id, f"the tag {key.hash_tag}" if key.hash_tag else "no tag", right,
            right, key.id, key.func,
            extra=event("misplaced key", task=key.id, func=key.func, tag=key.hash_tag, right=right),
        )  # fmt: skip
        self._hooks.emit(Misplaced(id=key.id, func=key.func, right=right))
