"""Arguments that were typed, and how they differ from the former ones."""

import pytest

from expirebridge import InvalidTask
from expirebridge.task.edited_arguments import changes, read_args, read_kwargs


def test_what_differs_is_named_by_place_and_by_name() -> None:
    found = changes([1, "a", [2]], {"x": 1, "y": None}, [1, "b"], {"y": False, "z": {"k": 1}})
    assert [(one.place, str(one)) for one in found] == [
        ("args[1]", '"a" -> "b"'),
        ("args[2]", "[2] -> (none)"),
        ("kwargs['x']", "1 -> (none)"),
        ("kwargs['y']", "null -> false"),
        ("kwargs['z']", '(none) -> {"k":1}'),
    ]


@pytest.mark.parametrize(("old", "new"), [(1, True), (1, 1.0), (0, False), ("1", 1), (None, 0)])
def test_other_types_of_json_differ(old: object, new: object) -> None:
    assert len(changes([old], {}, [new], {})) == 1
    assert changes([old], {"a": new}, [old], {"a": new}) == []


def test_a_name_is_no_place() -> None:
    found = changes([], {}, [1], {"args[0]": 2})
    assert [one.place for one in found] == ["args[0]", "kwargs['args[0]']"]


def test_what_was_typed_is_read() -> None:
    assert read_args('[42, "é"]') == [42, "é"]
    assert read_kwargs('{"a": [1]}') == {"a": [1]}


@pytest.mark.parametrize("typed", ["", "1", "{}", "[1", "[36893488147419103232]", "[\udce9]"])
def test_args_must_be_an_array(typed: str) -> None:
    with pytest.raises(InvalidTask, match=r"^args: "):
        read_args(typed)


@pytest.mark.parametrize("typed", ["", "1", "[]", '{"a"}', '{"*": 1}'])
def test_kwargs_must_be_an_object(typed: str) -> None:
    with pytest.raises(InvalidTask, match=r"^kwargs: "):
        read_kwargs(typed)
