"""Partitions: the shares of a database's ids, each with names in one hash slot of a cluster.

The partition of an id, with P partitions:

    CRC16(id up to its first `@`) mod 16384, times P, divided by 16384, rounded down

which is `CLUSTER KEYSLOT`, and the part of the slots in which that falls. All names of a partition
begin with its tag, such as `{021}`, whose own slot is in that part. So a tag is also an id of its
partition, and a cluster made in the usual way, with as many slots for each node, gives each node as
many partitions.
"""

from binascii import crc_hqx
from dataclasses import dataclass

SLOTS = 16384
MAX_PARTITIONS = 256
PARTITIONS_OF_CLUSTER = 16
"""How many partitions a new database has in a cluster, unless others were created."""

_TAGS = (
    "02105x0250ov02905p04n05t04s05i04w05m0ap0320at03606q01806u07o06y0100cv01400307z0070bu06h07r"
    "06l07v03o02u03k02q03g0gv03c02y0fu02d03z04303v02l03r02h0dw00f01x00b01t00n01p00j01m00w01i00s"
    "01e0et01a0ep02005y0240ow02805q04o05u04r05h04v05l04z0330au03706p01906t07n06x0110cw01500208z"
    "0060bt06i07s06m07w03n02t03j02p03f0gw03b02x0ft02e0fp02a03w02m03s02i0dv00g01y00c01u00o01q00k"
    "01l00v01h00r01d0eu07300z05z0230ot02705r04h05v04l03804q05o04u03004y0340av07i06s07m06w01209z"
    "0160ct07x0010bw00507p00907t06n02w03m02s03i0gt03e0gp03a02f0fw02b03x02n03t02j03p00d0du06301z"
    "00l01v00h01r00u01o00q01k0ev01g00y01c0oq0220ou02605s04i05w04m03904p05n04t03104x0350aw07h06r"
    "07l06v01306z0170cu07y0000bv00407q00807u06o02v03l02r03h0gu03d02z05302g0fv02c03y02o03u02k03q"
    "00e0dt00a0dp00m01w00i01s00t01n00p01j0ew01f00x01b"
)
"""The tags of 256 partitions: for each 64 slots the first text of three digits or letters there.
Of fewer partitions, each has the tag of the first of those that it spans."""


def slot_of_id(id: str) -> int:
    """The hash slot of an id: what a cluster answers to CLUSTER KEYSLOT for what is before its `@`.

    So the ticks of a series share its partition: their ids are `<series>@<ms>`.
    """
    return crc_hqx(id.partition("@")[0].encode(), 0) % SLOTS


def is_count(count: int) -> bool:
    """True for a legal number of partitions: a power of two, up to 256."""
    return 1 <= count <= MAX_PARTITIONS and count & (count - 1) == 0


@dataclass(frozen=True, slots=True)
class PartitionLayout:
    """The partitions of a database, and the mapping of ids and names to them."""

    prefix: str
    """The prefix that all partitions share, without the tag of one."""
    count: int = 1

    def partition_of(self, id: str) -> int:
        """The number of the partition to which an id belongs, from 0."""
        return 0 if self.count == 1 else slot_of_id(id) * self.count // SLOTS

    def tag_of(self, number: int) -> str:
        """The tag of a partition, without braces; empty if there is only one."""
        if self.count == 1:
            return ""
        begin = 3 * number * (MAX_PARTITIONS // self.count)
        return _TAGS[begin : begin + 3]

    def prefix_of(self, number: int) -> str:
        """The prefix of a partition's names, except for its trigger keys."""
        return self.hash_tag_of(number) + self.prefix

    def hash_tag_of(self, number: int) -> str:
        """The prefix of a partition's trigger keys: its tag, with braces."""
        tag = self.tag_of(number)
        return f"{{{tag}}}" if tag else ""

    def number_of(self, prefix: str) -> int:
        """The number of the partition whose names begin with this. Raises ValueError if none do."""
        return self.prefixes().index(prefix)

    def prefixes(self) -> list[str]:
        """The prefix of each partition."""
        return [self.prefix_of(number) for number in range(self.count)]
