"""The API reference: a page of Markdown for each public module, from signatures and docstrings.

The modules are imported, since the methods of a bridge are made from operations, and the source is
parsed, since it says what the fields of a class are. mkdocstrings does one of the two: it shows
either a bridge without its operations, or classes without their fields.
"""

import ast
import enum
import importlib
import inspect
import posixpath
import re
import textwrap
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Final, is_typeddict

from expirebridge import AsyncBridge, Bridge

MODULES: Final = {
    "expirebridge": "docs/reference/api/expirebridge.md",
    "expirebridge.ledger": "docs/reference/api/ledger.md",
    "expirebridge.testing": "docs/reference/api/testing.md",
    "expirebridge.hooks": "docs/reference/api/hooks.md",
    "expirebridge.contrib.django": "docs/reference/api/django.md",
}
"""The public modules, and where their pages are on the site."""

_METHODS = (property, classmethod, staticmethod)
_WIDTH = 80
_QUALIFIER = re.compile(
    r"\b(?:collections|datetime|expirebridge|pathlib|sqlalchemy|typing|zoneinfo)\.(?:[a-z]\w*\.)*"
)
"""Where a type is defined: signatures are shown without it."""
_UNPACKED = re.compile(r"\*<class '(\w+)'>")
_QUOTED = re.compile(r"(?<=: |> )'([^']*)'")
"""An annotation that is text."""
_UNION = re.compile(r"\b(Union|Optional)\[")
_NAMED_PAGE = re.compile(r"(?<![\w/`])(docs/[\w/-]+\.md)(#[\w-]+)?")
_SPAN = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)(?:\(\))?`(?!`)")
_ANCHOR = re.compile(r"^#+ .* \{#([\w.]+)\}$", re.MULTILINE)


class NotDocumented(Exception):
    """A public name has no docstring."""


def reference() -> dict[str, str]:
    """Return the pages of the reference by their place on the site.

    Raises NotDocumented.
    """
    texts = {
        place: "\n\n".join(_page(importlib.import_module(name))) + "\n"
        for name, place in MODULES.items()
    }
    anchors: dict[str, str] = {}
    for place, text in texts.items():
        for anchor in _ANCHOR.findall(text):
            anchors.setdefault(anchor, place)
    return {place: _linked(place, text, anchors) for place, text in texts.items()}


def _page(module: ModuleType) -> Iterator[str]:
    yield f"# Module {module.__name__}"
    yield _text_of(module, module.__name__)
    values = {name: getattr(module, name) for name in module.__all__}
    for name in sorted(values, key=lambda name: (_is_error(values[name]), name)):
        value = values[name]
        yield f"## {name} {{#{name}}}"
        if inspect.isclass(value):
            yield from _class(name, value)
        elif inspect.isfunction(value):
            yield _code(_signature(name, value))
            yield _text_of(value, name)
        else:
            yield _code(f"{name} = {_QUALIFIER.sub('', str(value))}")


def _is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def _class(name: str, value: type) -> Iterator[str]:
    if issubclass(value, enum.Enum) or (_is_error(value) and "__init__" not in vars(value)):
        yield _code(f"class {name}({value.__bases__[0].__name__})")
    elif is_typeddict(value):
        types = inspect.get_annotations(value)
        keys = [f"{key}: {inspect.formatannotation(types[key])}" for key in types]
        yield _code(_layout(f"class {name}", f"({', '.join(keys)})"))
    else:
        signature = str(inspect.signature(value)).removesuffix(" -> None")
        yield _code(_layout(f"class {name}", signature))
    yield _text_of(value, name)
    if fields := [f"- `{field}`: {text}" for field, text in _fields(value)]:
        yield "\n".join(fields)
    for inner, member in _members(value).items():
        yield f"### {inner} {{#{name}.{inner}}}"
        if isinstance(member, property):
            yield _code(f"{inner}: {_type_of(member)}")
        else:
            yield _code(_signature(inner, member))
        yield _text_of(member, f"{name}.{inner}")


def _members(value: type) -> dict[str, Any]:
    """The public methods and properties of a class, without those that Python gives it."""
    found: dict[str, Any] = {}
    for base in value.__mro__:
        for name, member in vars(base).items():
            is_method = inspect.isfunction(member) or isinstance(member, _METHODS)
            if is_method and base.__module__.startswith("expirebridge") and name[0] != "_":
                found.setdefault(name, getattr(value, name))
    if value is AsyncBridge:  # its docstring says that the others are those of a Bridge
        return {name: member for name, member in found.items() if not hasattr(Bridge, name)}
    return found


def _fields(value: type) -> Iterator[tuple[str, str]]:
    """The fields of a class, or the members of an enum, each with what the source says of it."""
    source = textwrap.dedent(inspect.getsource(value))
    lines = source.splitlines()
    body = next(one.body for one in ast.walk(ast.parse(source)) if isinstance(one, ast.ClassDef))
    for node, after in zip(body, [*body[1:], None], strict=True):
        match node:
            case ast.AnnAssign(target=ast.Name(name)) if not name.startswith("_"):
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                    yield name, " ".join(str(after.value.value).split())
            case ast.Assign(targets=[ast.Name(name)]) if issubclass(value, enum.Enum):
                comment = lines[node.lineno - 1].partition("  # ")[2]
                yield name, f"`{value[name].value}`" + (f", {comment}" if comment else "")


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [one for one in signature.parameters.values() if one.name != "self"]
    word = "async def" if inspect.iscoroutinefunction(function) else "def"
    return _layout(f"{word} {name}", str(signature.replace(parameters=parameters)))


def _layout(head: str, signature: str) -> str:
    """A signature on one line, or with a line for each parameter if it is long."""
    signature = _QUOTED.sub(r"\1", _QUALIFIER.sub("", signature))
    signature = _with_bars(_UNPACKED.sub(r"Unpack[\1]", signature))
    signature = signature.replace("<factory>", "...").replace(".client.Redis", ".Redis")
    if len(head) + len(signature) <= _WIDTH:
        return head + signature
    parameters, _, result = signature.removeprefix("(").rpartition(")")
    return f"{head}(\n    " + ",\n    ".join(_parts(parameters)) + f",\n){result}"


def _with_bars(text: str) -> str:
    """Write `Union[A, NoneType]` and `Optional[A]` as `A | None`, and type variables by name."""
    while found := _UNION.search(text):
        end, depth = found.end(), 1
        while depth:
            depth += (text[end] == "[") - (text[end] == "]")
            end += 1
        types = [*_parts(text[found.end() : end - 1])]
        if found[1] == "Optional":
            types.append("None")
        text = text[: found.start()] + " | ".join(types) + text[end:]
    return re.sub(r"\bNoneType\b", "None", re.sub(r"~(?=[A-Z])", "", text))


def _parts(parameters: str) -> Iterator[str]:
    """Split at the commas that are in no brackets."""
    depth = begin = 0
    for at, letter in enumerate(parameters):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            yield parameters[begin:at]
            begin = at + 2
    yield parameters[begin:]


def _type_of(member: property) -> str:
    return _layout("", str(inspect.signature(member.fget or object))).rpartition("-> ")[2]


def _text_of(value: object, name: str) -> str:
    text = inspect.getdoc(value)
    if not text:
        raise NotDocumented(f"{name} has no docstring")
    return text


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _linked(place: str, text: str, anchors: Mapping[str, str]) -> str:
    """A page with links to the public names and to the pages that its docstrings name."""
    own = set(_ANCHOR.findall(text))

    def to_name(span: re.Match[str]) -> str:
        name = span[1]
        target = place if name in own else anchors.get(name)
        if target is None:
            return span[0]
        return f"[{span[0]}]({_link(place, target)}#{name})"

    def to_page(named: re.Match[str]) -> str:
        return f"[{named[0]}]({_link(place, named[1])}{named[2] or ''})"

    parts = re.split(r"(```.*?```)", text, flags=re.DOTALL)
    parts[::2] = [_NAMED_PAGE.sub(to_page, _SPAN.sub(to_name, part)) for part in parts[::2]]
    return "".join(parts)


def _link(place: str, target: str) -> str:
    return posixpath.relpath(target, posixpath.dirname(place))
