"""The partitions of a server, by the names of their keys and channels."""

from expirebridge.listener.partition.consumer import PartitionConsumer
from expirebridge.listener.partition.misplaced_keys import MisplacedKeys


class KeyRouter:
    """Finds the partition of a key or channel among those of a server.

    Without a tag, as with one partition, every key belongs to the one consumer. `misplaced` names
    keys that are in no partition; without it that of the first of several consumers does.
    """

    def __init__(self, misplaced: MisplacedKeys | None = None) -> None:
        self.consumers: tuple[PartitionConsumer, ...] = ()
        self.by_channel: dict[bytes, PartitionConsumer] = {}
        """Each by the channel on which producers announce its tasks."""
        self._misplaced = misplaced
        self._by_tag: dict[bytes, PartitionConsumer] = {}
        self._lengths: list[int] = []
        self._elsewhere: frozenset[bytes] = frozenset()
        """The tags of all partitions: those without a consumer here are on another node."""

    def add(self, consumer: PartitionConsumer) -> None:
        """Add a partition that is on this server now."""
        self._index((*self.consumers, consumer))
        layout = consumer.store.database.layout
        if layout.count > 1:
            self._misplaced = self._misplaced or consumer.misplaced
            numbers = range(layout.count)
            self._elsewhere = frozenset(layout.hash_tag_of(each).encode() for each in numbers)

    def remove(self, consumer: PartitionConsumer) -> None:
        """Remove a partition that has left this server."""
        self._index(tuple(each for each in self.consumers if each is not consumer))

    def _index(self, consumers: tuple[PartitionConsumer, ...]) -> None:
        self.consumers = consumers
        self.by_channel = {consumer.doorbell_channel: consumer for consumer in consumers}
        self._by_tag = {consumer.tag: consumer for consumer in consumers}
        self._lengths = sorted({len(tag) for tag in self._by_tag})

    def find(self, name: bytes) -> PartitionConsumer | None:
        """The consumer of a key of this name; None if it is not of any partition here."""
        for length in self._lengths:
            consumer = self._by_tag.get(name[:length])
            if consumer is not None:
                return consumer
        return None

    def notice_misplaced(self, name: bytes) -> None:
        """Name a key that has no consumer, if it has the form of a trigger key.

        A partition that is on another node is that node's: what this one says of it is ignored.
        """
        if self._misplaced is None or b":?" not in name:
            return
        tag, brace, _ = name.partition(b"}")
        if tag + brace not in self._elsewhere:
            self._misplaced.hear(name)
