"""The directory: which station a key belongs to, by the tag with which its name begins."""

from collections.abc import Sequence

from expirebridge.listener.station.station import Station


class Directory:
    """Finds the station of a key among those of a node.

    Without a tag, as with one partition, every key belongs to the one station.
    """

    def __init__(self, stations: Sequence[Station]) -> None:
        self._by_tag = {station.tag: station for station in stations}
        self._lengths = sorted({len(tag) for tag in self._by_tag})
        several = [station for station in stations if station.store.database.partitions > 1]
        self._misplaced = several[0].misplaced if several else None

    def find(self, name: bytes) -> Station | None:
        """The station of a key of this name; None if it is not of any partition here."""
        for length in self._lengths:
            station = self._by_tag.get(name[:length])
            if station is not None:
                return station
        return None

    def notice_misplaced(self, name: bytes) -> None:
        """Name a key that has no station, if it has the form of a trigger key."""
        if self._misplaced is not None and b":?" in name:
            self._misplaced.hear(name)
