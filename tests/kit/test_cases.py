"""One test of many cases: it tries all of them, and says which fail."""

import pytest

from tests.kit.cases import each


def test_all_cases_that_fail_are_listed() -> None:
    tried: list[tuple[str, int]] = []

    @each("word", ["a", "b"])
    @each(("number", "is_odd"), [(1, True), (2, True), (3, False)])
    def check(word: str, number: int, is_odd: bool) -> None:
        tried.append((word, number))
        if not is_odd:
            with pytest.raises(ValueError, match="odd"):
                pass
        assert number % 2 == is_odd

    with pytest.raises(BaseExceptionGroup, match=r"^2 of 2 cases fail") as caught:
        check()
    assert tried == [(word, number) for word in "ab" for number in (1, 2, 3)]
    first, second = caught.value.exceptions
    assert isinstance(first, BaseExceptionGroup)
    assert (first.__notes__, second.__notes__) == (["in the case ('a',)"], ["in the case ('b',)"])
    assert [one.__notes__ for one in first.exceptions] == [
        ["in the case (2, True)"],
        ["in the case (3, False)"],
    ]


@each("number", [1, 2])
def test_fixtures_are_those_of_the_test(number: int, tmp_path: object) -> None:
    assert tmp_path
    assert number
