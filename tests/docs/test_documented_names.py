"""What pages name is there: dotted names, files and folders, identifiers of the code, and commands
with their options.

Not in decisions and the change log, which tell what was.
"""

import importlib
import re
import shlex
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import pytest
import typer

from tests.kit.invoked import ROOT_COMMAND

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "expirebridge"
PAGES: Final = [
    page
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    if page.name != "CHANGELOG.md" and "adr" not in page.parts
]
CODE: Final = ("expirebridge", "tasks", "tests", "examples", "benchmarks", "deploy", "website")
TOPS: Final = {path.name for path in ROOT.iterdir() if path.is_dir()}

USAGE_ERROR: Final = cast("type[Exception]", typer.BadParameter.__base__)
"""Of the click that this version of typer uses, its own or not."""

_FENCED = re.compile(r"```.*?```", re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_DOTTED = re.compile(r"\bexpirebridge(?:\.[A-Za-z_]\w*)+")
_IDENTIFIERS = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(.*\))?")
_COMPOUND = re.compile(r"(?<![\w-])[A-Za-z]+(?:_[A-Za-z0-9]+)+(?![\w-])")
"""A name in a longer piece of code: of several words, so of no other kind."""
_PATH = re.compile(r"[\w.<>*-]+(?:/[\w.<>*-]*)*")
_FILE = re.compile(r"\.(py|lua|md|toml|conf|ya?ml|json|html|lock|sh)$")
_BLOCK = re.compile(r"```(\w*)\n(.*?)```|((?:^ {4}.*\n)+)", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(
    r"^(?: {4})*(?:\$ )?(?:\w+=\S+ )*expirebridge +(.*?) *(?: [#|&>]|\|\||[;)]|$)", re.MULTILINE
)
_IN_FILE = re.compile(r"((?:`\w+`(?:, | and )?)+) (?:in|of) `([\w/]+\.(?:py|lua))`")

FOREIGN_FILES: Final = {
    "manage.py": "Django's",
    "tests.py": "Django's",
    "*_test.py": "pytest's",
    "billing/tasks.py": "the reader's",
    "shop/tasks.py": "the reader's",
    "put_off.py": "the reader's, in the tutorial",
    "tasks/shop/faq.py": "the reader's, in an example",
    ".github/workflows/release.yml": "to be made with the first release",
    "release.yml": "to be made with the first release",
    "include/x.lua": "one for each `-- include x`",
}
FOREIGN_NAMES: Final = {
    *("CLUSTERDOWN", "EXPIREAT", "HELP", "RESTORE", "SUBSCRIBE"),  # Redis
    *("cache_config", "notifyKeyspaceEvents", "redis_db"),  # its libraries and its hosts
    *("attemptsMade", "limiter", "rateLimit"),  # BullMQ
    *("setGlobalConcurrency", "waitUntilFinished"),
    *("acks_late", "AsyncResult", "rabbitmq_delayed_message_exchange", "soft_time_limit"),  # Celery
    *("accounts", "BASE_DIR"),  # Django
    "wait_condition",  # Temporal
    *("disable_existing_loggers", "LazyLoader"),  # Python
    *("epoll_pwait2", "schema_translate_map"),  # Linux, SQLAlchemy
    *("handle_path", "hostNetwork", "proxy_pass"),  # Caddy, Kubernetes, nginx
}


def spans_of(text: str) -> list[str]:
    return _SPAN.findall(_FENCED.sub("", text))


def resolves(name: str) -> bool:
    """Whether this is a module, or an attribute of one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        module = ".".join(parts[:count])
        try:
            found: object = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if not (error.name and module.startswith(error.name)):
                raise
            continue
        for part in parts[count:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def dotted_faults(text: str) -> Iterator[str]:
    """Without a module behind it, the name is that of a fixture, of a log's field or the like."""
    modules = {path.stem for path in PACKAGE.iterdir()}
    for name in {name for span in spans_of(text) for name in _DOTTED.findall(span)}:
        if name.split(".")[1] in modules and not resolves(name):
            yield name


@cache
def files() -> frozenset[str]:
    """Files and folders, and each of their paths from any folder that they are in."""
    tops = {*CODE, "docs", ".ci", ".github", ".devcontainer"}
    found = [*ROOT.iterdir(), *(path for top in tops for path in (ROOT / top).rglob("*"))]
    paths = (path.relative_to(ROOT).parts for path in found)
    ours = [parts for parts in paths if not {"__pycache__", "node_modules"} & {*parts}]
    return frozenset("/".join(parts[at:]) for parts in ours for at in range(len(parts)))


def is_made(path: str) -> bool:
    """Whether git ignores it, since a command makes it."""
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()]
    return any(fnmatch(path.split("/", maxsplit=1)[0], one) for one in ignored)


def path_faults(text: str) -> Iterator[str]:
    """Files and folders that are not there, by their path from any folder."""
    for span in spans_of(text):
        is_path = _FILE.search(span) or (
            "/" in span and (span[-1] == "/" or span.split("/")[0] in TOPS)
        )
        if not (is_path and _PATH.fullmatch(span)) or span in FOREIGN_FILES or is_made(span):
            continue
        pattern = re.sub(r"<\w+>", "*", span.strip("/"))
        if pattern not in files() and not any(fnmatch(file, pattern) for file in files()):
            yield span


@cache
def words() -> frozenset[str]:
    """The words of the code, but for those of this file."""
    kinds = {".py", ".lua", ".html", ".css", ".js", ".php", ".service", ".toml", ".yaml", ".yml"}
    found = {path for top in CODE for path in (ROOT / top).rglob("*") if path.suffix in kinds}
    found |= {path for path in [*ROOT.iterdir(), *(ROOT / ".ci").iterdir()] if path.is_file()}
    found |= {*(ROOT / "docs").glob("*.yml")}
    found = {path for path in found if "node_modules" not in path.parts and path.suffix != ".md"}
    texts = (path.read_text("utf-8") for path in found - {Path(__file__)})
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


def name_faults(text: str) -> Iterator[str]:
    """Identifiers that no code has: whole spans, and in longer ones the names of several words."""
    for span in spans_of(text):
        if _FILE.search(span):
            continue
        if _IDENTIFIERS.fullmatch(span):
            named = re.findall(r"\w+", span.partition("(")[0])
        else:
            named = _COMPOUND.findall(span)
        for name in named:
            variable = name.removeprefix("EXPIREBRIDGE_").lower()
            metric = name.removesuffix("_total")
            if name not in FOREIGN_NAMES and not {name, variable, metric} & words():
                yield name


def place_faults(text: str) -> Iterator[str]:
    """Names that a page has "in `file`", and that are not in it."""
    for names, file in _IN_FILE.findall(text):
        places = [path for top in CODE for path in (ROOT / top).rglob(Path(file).name)]
        texts = [path.read_text("utf-8") for path in places if path.match(file)]
        for name in re.findall(r"\w+", names):
            if texts and not any(re.search(rf"\b{name}\b", text) for text in texts):
                yield f"{name} in {file}"


def command_faults(text: str) -> Iterator[str]:
    """Commands that refuse the words that follow them."""
    found = _BLOCK.findall(re.sub(r"\\\n *", "", text))
    blocks = (one or other for kind, one, other in found if kind in {"", "bash", "console", "sh"})
    for typed in (line for block in blocks for line in _COMMAND.findall(block)):
        if "--install-completion" in typed:  # parsing it installs it
            continue
        if is_refused(shlex.split(typed)):
            yield typed


def is_refused(words: list[str]) -> bool:
    """Whether a command refuses these words; it reads them, and does nothing."""
    command: Any = ROOT_COMMAND
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if hasattr(command, "commands") and words and not words[0].startswith("-"):
        return True
    try:
        command.make_context(command.name, words)
    except USAGE_ERROR:
        return True
    except SystemExit:  # it printed its version or its help
        pass
    return False


CHECKS: Final = [dotted_faults, path_faults, name_faults, place_faults, command_faults]


@pytest.mark.parametrize("check", CHECKS)
def test_what_a_page_names_is_there(check: Callable[[str], Iterator[str]]) -> None:
    faults = {page.relative_to(ROOT): sorted({*check(page.read_text("utf-8"))}) for page in PAGES}
    assert {page: found for page, found in faults.items() if found} == {}


def test_what_is_not_there_is_found() -> None:
    text = """
`expirebridge.ledger.Ledger.make_task`, `expirebridge.ledger.engines.begin_immediate(engine)`;
`tests/docs`, `tests/nowhere`, `gone/`, `test_links.py`, `tests/docs/test_*.py`, `nowhere.lua`;
`Bridge.make_task(...)`, `Bridge.makes_a_task`, `if_nothing_exists="keep"`, `RARITIES`;
`PAGES` and `NOTHING_AT_ALL` in `test_links.py`
```console
$ A=1 expirebridge show a | head -1
$ expirebridge list pending  # no
$ expirebridge count --\\
    jsn
```

    expirebridge ledger shrink

"""
    found = [sorted({*check(text)}) for check in CHECKS]
    assert found == [
        ["expirebridge.ledger.engines.begin_immediate"],
        ["gone/", "nowhere.lua", "tests/nowhere"],
        ["NOTHING_AT_ALL", "RARITIES", "if_nothing_exists", "makes_a_task"],
        ["NOTHING_AT_ALL in test_links.py"],
        ["count --jsn", "ledger shrink", "list pending"],
    ]
