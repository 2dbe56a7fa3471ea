"""The directory: which stations stand on a node, and to which of them a key belongs."""

from expirebridge.listener.partition.consumer import PartitionConsumer
from expirebridge.listener.partition.misplaced_keys import MisplacedKeys


class KeyRouter:
    """The stations of a node, in order; they come and go where the node is one of several.

    Without a tag, as with one partition, every key belongs to the one station. `misplaced` names
    keys that are in no partition; without it that of the first of several stations does.
    """

    def __init__(self, misplaced: MisplacedKeys | None = None) -> None:
        self.stations: tuple[PartitionConsumer, ...] = ()
        self.by_channel: dict[bytes, PartitionConsumer] = {}
        """Each by the channel on which producers announce its tasks."""
        self._misplaced = misplaced
        self._by_tag: dict[bytes, PartitionConsumer] = {}
        self._lengths: list[int] = []
        self._elsewhere: frozenset[bytes] = frozenset()
        """The tags of all partitions: those without a station here are on another node."""

    def add(self, station: PartitionConsumer) -> None:
        """Take note that a station stands here."""
        self._index((*self.stations, station))
        layout = station.store.database.layout
        if layout.count > 1:
            self._misplaced = self._misplaced or station.misplaced
            numbers = range(layout.count)
            self._elsewhere = frozenset(layout.slot_of(each).encode() for each in numbers)

    def remove(self, station: PartitionConsumer) -> None:
        """Take note that a station stands here no longer."""
        self._index(tuple(each for each in self.stations if each is not station))

    def _index(self, stations: tuple[PartitionConsumer, ...]) -> None:
        self.stations = stations
        self.by_channel = {station.doorbell_channel: station for station in stations}
        self._by_tag = {station.tag: station for station in stations}
        self._lengths = sorted({len(tag) for tag in self._by_tag})

    def find(self, name: bytes) -> PartitionConsumer | None:
        """The station of a key of this name; None if it is not of any partition here."""
        for length in self._lengths:
            station = self._by_tag.get(name[:length])
            if station is not None:
                return station
        return None

    def notice_misplaced(self, name: bytes) -> None:
        """Name a key that has no station, if it has the form of a trigger key.

        A partition that is on another node is that node's: what this one says of it is ignored.
        """
        if self._misplaced is None or b":?" not in name:
            return
        tag, brace, _ = name.partition(b"}")
        if tag + brace not in self._elsewhere:
            self._misplaced.hear(name)
