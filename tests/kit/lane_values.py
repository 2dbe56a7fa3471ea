"""Arguments as JSON, and the value of the lane that each chooses: for Python and for Lua."""

from hashlib import sha1
from typing import NamedTuple


class LaneValue(NamedTuple):
    """An argument as a client wrote it, and the value of its lane by the script that claims."""

    json: str
    value: str
    in_python: str | None = None
    """What `lane_value` makes of the decoded argument, if that differs."""

    @property
    def python(self) -> str:
        """What `lane_value` makes of the decoded argument."""
        return self.value if self.in_python is None else self.in_python


def hashed(text: str) -> str:
    return "#" + sha1(text.encode(), usedforsecurity=False).hexdigest()


LANE_VALUES = [
    # Text stands for its bytes, however it was escaped.
    LaneValue('"acme"', "acme"),
    LaneValue('"é"', "é"),
    LaneValue(r'"\u00e9"', "é"),
    LaneValue(r'"\u00E9"', "é"),
    LaneValue(r'"e\u0301"', "e\u0301"),  # not normalized
    LaneValue('"😀"', "😀"),
    LaneValue(r'"\ud83d\ude00"', "😀"),
    LaneValue('""', ""),
    LaneValue('" a=b/c:d "', " a=b/c:d "),
    LaneValue(r'"\"\\\/"', '"\\/'),
    LaneValue('"#"', "#"),
    LaneValue('"%d"', "%d"),
    LaneValue('"null"', "null"),
    # Control characters are hashed.
    LaneValue(r'"\u0000"', hashed("\0")),
    LaneValue(r'"a\u0000b"', hashed("a\0b")),
    LaneValue(r'"a\nb"', hashed("a\nb")),
    LaneValue(r'"\u001f"', hashed("\x1f")),
    LaneValue(r'"\u007f"', hashed("\x7f")),
    LaneValue('"\x7f"', hashed("\x7f")),
    LaneValue(r'"\u0080"', "\x80"),
    # So is what is longer than 100 bytes.
    LaneValue(f'"{"a" * 100}"', "a" * 100),
    LaneValue(f'"{"a" * 101}"', hashed("a" * 101)),
    LaneValue(f'"{"é" * 50}"', "é" * 50),
    LaneValue(f'"{"é" * 50}a"', hashed("é" * 50 + "a")),
    LaneValue(f'"{"é" * 51}"', hashed("é" * 51)),
    LaneValue('"' + r"\u00e9" * 50 + '"', "é" * 50),
    # A number that is whole stands for its digits, whichever way it was written.
    LaneValue("17", "17"),
    LaneValue("17.0", "17"),
    LaneValue("1.7e1", "17"),
    LaneValue("1.7E+1", "17"),
    LaneValue("170e-1", "17"),
    LaneValue('"17"', "17"),
    LaneValue('"17.0"', "17.0"),
    LaneValue('"-0"', "-0"),
    LaneValue("0", "0"),
    LaneValue("-0", "0"),
    LaneValue("-0.0", "0"),
    LaneValue("0e5", "0"),
    LaneValue("-17", "-17"),
    LaneValue("-17.0", "-17"),
    LaneValue("1e3", "1000"),
    # Lua reads integers as floats, too: the digits are those that were written.
    LaneValue("9007199254740992", "9007199254740992"),
    LaneValue("9007199254740993", "9007199254740993"),
    LaneValue("-9007199254740993", "-9007199254740993"),
    LaneValue("1234567890123456789", "1234567890123456789"),
    LaneValue("9223372036854775807", "9223372036854775807"),
    LaneValue("9223372036854775808", "9223372036854775808"),
    LaneValue("-9223372036854775808", "-9223372036854775808"),
    LaneValue("18446744073709551615", "18446744073709551615"),
    # Beyond 64 bits they fit no handler, and Python reads them as floats.
    LaneValue("18446744073709551616", "18446744073709551616", "1.8446744073709552e+19"),
    LaneValue(str(10**30), str(10**30), "1e+30"),
    LaneValue(str(10**100), hashed(str(10**100)), "1e+100"),
    # Other numbers have 17 digits.
    LaneValue("9007199254740992.0", "9007199254740992"),
    LaneValue("9007199254740993.0", "9007199254740992"),  # the nearest float
    LaneValue("9007199254740994.0", "9007199254740994"),
    LaneValue("9007199254740995.0", "9007199254740996"),
    LaneValue("1e15", "1000000000000000"),
    LaneValue("1e16", "10000000000000000"),
    LaneValue("1e17", "1e+17"),
    LaneValue("-1e17", "-1e+17"),
    LaneValue("1e300", "1.0000000000000001e+300"),
    LaneValue("0.1", "0.10000000000000001"),
    LaneValue("-0.5", "-0.5"),
    LaneValue("1e-7", "9.9999999999999995e-08"),
    LaneValue("3.14", "3.1400000000000001"),
    # The three words.
    LaneValue("true", "true"),
    LaneValue("false", "false"),
    LaneValue("null", "null"),
    # Arrays and objects stand for their JSON as it was written; Python writes it anew, without
    # spaces.
    LaneValue("[]", hashed("[]")),
    LaneValue("{}", hashed("{}")),
    LaneValue("[1,2]", hashed("[1,2]")),
    LaneValue("[1, 2]", hashed("[1, 2]"), hashed("[1,2]")),
    LaneValue('{"a":[null,true]}', hashed('{"a":[null,true]}')),
    LaneValue('{"a": 1}', hashed('{"a": 1}'), hashed('{"a":1}')),
    LaneValue('["é"]', hashed('["é"]')),
    LaneValue(r'["\u00e9"]', hashed(r'["\u00e9"]'), hashed('["é"]')),
    LaneValue('["],[",{"b":"}"}]', hashed('["],[",{"b":"}"}]')),
]
