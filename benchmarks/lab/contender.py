"""A contender, as the header of its file describes it.

The header is inline script metadata (PEP 723), in a comment, so that all that is to be known of a
contender is in one file, and the lab need not import it: its libraries are in an environment of
their own.
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

FOLDER = Path(__file__).parents[1] / "contenders"
REPOSITORY = FOLDER.parents[1]
_HEADER = re.compile(r"^(?P<mark>#|//) /// script$(?P<lines>.*?)^(?P=mark) ///$", re.M | re.S)
_COMMENT = re.compile(r"^(#|//) ?", re.M)


@dataclass(frozen=True, kw_only=True)
class Contender:
    """Who is measured, and how it is run."""

    name: str
    title: str
    kind: str
    """`ours`, `peer`, `baseline`, `design`, or `limit`: the server itself, which runs nothing."""
    worker: tuple[str, ...]
    """The commands of the processes that run what is due. `{url}`, `{port}`, `{module}`, `{file}`,
    `{here}` and `{concurrency}` are filled in."""
    driver: str
    """The command of the process that makes tasks."""
    handlers: tuple[str, ...]
    """The kinds of handler that it has: `async`, `plain`."""
    dependencies: tuple[str, ...]
    """Packages of PyPI, or for a contender in JavaScript, of npm."""
    environment: str
    """`own`, `lab` (the lab's own) or `node`."""
    runs_in_driver: bool
    """Whether tasks run in the process that makes them."""
    place: str
    """Where pending tasks are: `server`, `database`, `file` or `worker`, through which they are
    made then."""
    server: str
    """The command of a server of its own, if its tasks are in neither Redis nor a database: then
    `{port}` is its port, and it must listen on it. Runs in the folder of the measurement."""
    interval: float
    """Seconds from one look for due tasks to the next, where this is a setting: waits are longer by
    that."""
    keepalive: bool
    """Whether its tasks can be put off: it has `keep(numbers, seconds)`."""
    databases: tuple[str, ...]
    """The SQL databases that it can keep tasks in, or send them after a commit there; the first is
    started if nothing else is asked for."""
    prepare: tuple[str, ...]
    """Commands that are run once, with its server and its database."""
    only: tuple[str, ...]
    """The measurements that it takes part in, if it cannot do all."""
    because: str
    """Why it takes part in these only."""
    variables: dict[str, str]
    """Set in its processes. They are filled in as the worker's commands are, with `{database}`."""
    redelivery: float
    """Seconds after which tasks of a worker that is not heard of are taken up again, by its
    documentation; 0 if they are not, or only much later."""
    concurrency: str
    settings: str
    documentation: tuple[str, ...]
    recurring: tuple[str, ...]
    """The commands of all that recurring tasks need; none if it takes no part in that."""
    recurring_client: str
    """The command that makes the series, if that is not in what those read."""

    @property
    def file(self) -> Path:
        """Its file."""
        return next(FOLDER.glob(f"{self.name}.*"))

    @property
    def module(self) -> str:
        """Its file, as Python imports it."""
        return f"benchmarks.contenders.{self.name}"

    @property
    def runs_tasks(self) -> bool:
        """Whether there is anybody who runs what is due."""
        return bool(self.worker) or self.runs_in_driver

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read the header of a contender's file."""
        header = _HEADER.search(file.read_text(encoding="utf-8"))
        if header is None:
            raise ValueError(f"{file}: no header `# /// script`; see benchmarks/README.md")
        script: dict[str, Any] = tomllib.loads(_COMMENT.sub("", header["lines"]))
        lab: dict[str, Any] = script["tool"]["lab"]
        return cls(
            name=file.stem,
            title=lab["title"],
            kind=lab["kind"],
            worker=tuple(lab["worker"]),
            driver=lab.get("driver", "python -m benchmarks.kit.driver {module}"),
            handlers=tuple(lab["handlers"]),
            dependencies=tuple(script.get("dependencies", ())),
            environment=lab.get("environment", "own"),
            runs_in_driver=lab.get("runs_in_driver", False),
            place=lab.get("place", "server"),
            server=lab.get("server", ""),
            interval=lab.get("interval", 0),
            keepalive=lab.get("keepalive", False),
            databases=tuple(lab.get("databases", ())),
            prepare=tuple(lab.get("prepare", ())),
            only=tuple(lab.get("only", ())),
            because=lab.get("because", ""),
            variables=lab.get("variables", {}),
            redelivery=lab.get("redelivery", 0),
            concurrency=lab.get("concurrency", "none to set"),
            settings=lab["settings"],
            documentation=tuple(lab["documentation"]),
            recurring=tuple(lab.get("recurring", ())),
            recurring_client=lab.get("recurring_client", ""),
        )


ORDER = ("ours", "limit", "baseline", "design", "peer")
"""In which kinds are measured and shown."""


def find_contenders() -> dict[str, Contender]:
    """All that have a file in benchmarks/contenders, by name: ours first, then the baselines."""
    files = [f for f in FOLDER.iterdir() if f.suffix in {".py", ".cjs"} and f.stem != "__init__"]
    found = [Contender.read(file) for file in files]
    found.sort(key=lambda contender: (ORDER.index(contender.kind), contender.name))
    return {contender.name: contender for contender in found}
