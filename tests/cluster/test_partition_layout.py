"""Which partition an id belongs to: the same for every client, and for its ticks."""

from itertools import product
from pathlib import Path
from string import ascii_lowercase, digits

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expirebridge.task.keys import is_id
from expirebridge.task.partitions import (
    MAX_PARTITIONS,
    SLOTS,
    PartitionLayout,
    is_count,
    slot_of_id,
)

COUNTS = [2**power for power in range(9)]
IDS = st.text(ascii_lowercase + digits + "_.:@-", min_size=1, max_size=128)


@pytest.mark.parametrize(
    ("id", "slot"),
    # What Redis answers to CLUSTER KEYSLOT; the first is the check value of CRC16/XMODEM.
    [("123456789", 12739), ("foo", 12182), ("bar", 5061), ("a", 15495)],
)
def test_the_slot_of_an_id_is_that_of_a_cluster(id: str, slot: int) -> None:
    assert slot_of_id(id) == slot


@given(IDS, st.sampled_from(COUNTS), st.integers(0, 2**53))
def test_a_tick_belongs_to_the_partition_of_its_series(id: str, count: int, ms: int) -> None:
    layout = PartitionLayout("expirebridge", count)
    assert 0 <= layout.partition_of(id) < count
    assert layout.partition_of(f"{id}@{ms}") == layout.partition_of(id)


@given(IDS, st.sampled_from(COUNTS[:-1]))
def test_of_twice_as_many_partitions_two_have_the_ids_of_one(id: str, count: int) -> None:
    whole, halves = (
        PartitionLayout("expirebridge", count),
        PartitionLayout("expirebridge", 2 * count),
    )
    assert halves.partition_of(id) // 2 == whole.partition_of(id)


@pytest.mark.parametrize("count", COUNTS[1:])
def test_a_tag_is_in_its_partition_s_part_of_the_slots(count: int) -> None:
    layout = PartitionLayout("expirebridge", count)
    tags = [layout.tag_of(number) for number in range(count)]
    assert len(set(tags)) == count
    for number, tag in enumerate(tags):
        assert slot_of_id(tag) // (SLOTS // count) == number
        assert layout.partition_of(f"{tag}@{'0' * 40}") == number
        assert is_id(tag)
    # It is asked first, by those who do not know their number.
    assert tags[0] == "021"


def test_the_tags_are_the_first_that_there_are() -> None:
    found: dict[int, str] = {}
    for letters in product(digits + ascii_lowercase, repeat=3):
        tag = "".join(letters)
        found.setdefault(slot_of_id(tag) * MAX_PARTITIONS // SLOTS, tag)
    layout = PartitionLayout("expirebridge", MAX_PARTITIONS)
    assert [layout.tag_of(number) for number in range(MAX_PARTITIONS)] == [
        found[number] for number in range(MAX_PARTITIONS)
    ]


@pytest.mark.parametrize("name", ["order-{}", "dev:{}", "user{:08}", "2031-05-01/{}"])
@pytest.mark.parametrize("count", [4, 16, 64])
def test_numbered_ids_are_spread_evenly(name: str, count: int) -> None:
    layout = PartitionLayout("expirebridge", count)
    ids = 10_000
    counts = [0] * count
    for number in range(ids):
        counts[layout.partition_of(name.format(number))] += 1
    assert 0.85 * ids / count < min(counts)
    assert max(counts) < 1.15 * ids / count


def test_one_partition_has_no_tag() -> None:
    layout = PartitionLayout("expirebridge")
    assert layout.prefixes() == ["expirebridge"]
    assert layout.hash_tag_of(0) == ""
    assert layout.partition_of("a") == 0


def test_there_are_powers_of_two() -> None:
    assert [count for count in range(-2, 1025) if is_count(count)] == COUNTS


def test_the_page_has_the_table_and_its_example() -> None:
    docs = Path(__file__).parents[2] / "docs"
    table = (docs / "partition-tags.txt").read_text(encoding="utf-8").split()
    whole = PartitionLayout("expirebridge", MAX_PARTITIONS)
    assert table == [whole.tag_of(number) for number in range(MAX_PARTITIONS)]
    page = (docs / "reference" / "wire-protocol.md").read_text(encoding="utf-8")
    _, _, section = page.partition("\n### Tags\n")
    layout = PartitionLayout("expirebridge", 16)
    assert f"{layout.hash_tag_of(layout.partition_of('dev:7'))}dev:7:?devices.offline?" in section
