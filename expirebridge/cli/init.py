"""The command that starts a project: a handler, a producer, and files to run them."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from expirebridge.cli.ending import NOT_POSSIBLE
from expirebridge.cli.output import print_line
from expirebridge.embedded.resources import redis_conf

HANDLERS = '''"""Handlers: a task names a public function of this file as reminders.<function>."""

from expirebridge import current_task, handler


@handler(retry=["15s", "1m", "10m"], timeout="30s")
async def remind(user: int, text: str) -> None:
    """Remind a user. It may run twice: use the task's id to recognize the second run."""
    print(f"{current_task().id}: remind user {user}: {text}", flush=True)
'''

PRODUCER = '''"""Makes a task: in five seconds the listener runs `remind` in tasks/reminders.py."""

from expirebridge import make_task

task = make_task("reminders.remind", [42, "stand up"], "5s")
print(task.id, "is due at", task.due.isoformat())
'''

UNIT = """# cp expirebridge.service /etc/systemd/system/ && systemctl enable --now expirebridge
[Unit]
Description=expirebridge listener
After=network-online.target
Wants=network-online.target
# A listener that starts while Redis is down ends: try again for as long as it takes.
StartLimitIntervalSec=0

[Service]
WorkingDirectory={folder}
# URLs may hold passwords. Everyone can read what is in Environment=; this file, only its owner.
EnvironmentFile={folder}/expirebridge.env
# To use all cores, add: --workers auto. Then `systemctl reload` can replace the workers one by one,
# with ExecReload=/bin/kill -HUP $MAINPID
ExecStart={command} listen --tasks tasks --grace 30
# On SIGTERM it claims no more tasks, and running ones have --grace seconds to finish.
TimeoutStopSec=45
# SIGTERM is for the listener, and not for programs that its handlers have started.
KillMode=mixed
# Exit code 4: a handler never returned, and only a new process frees its place.
Restart=always
RestartSec=1
DynamicUser=yes
ProtectSystem=strict
ProtectHome=read-only

[Install]
WantedBy=multi-user.target
"""

ENVIRONMENT = """# Read by expirebridge.service. It may hold passwords: only its owner may read it.
EXPIREBRIDGE_URL=redis://localhost:6379/1
# With a ledger, tasks in a table of your own SQL database:
#EXPIREBRIDGE_LEDGER=postgresql+psycopg://app:PASSWORD@localhost/app
"""
SECRET = 0o600
"""Permissions of the environment file: only its owner reads it."""

COMPOSE = """# docker compose up
#
# expirebridge is in no package index yet: its wheel stands beside this file. In a checkout of it:
#   python -m build --wheel --outdir {folder}
services:
  redis:
    image: redis:8
    # Only the listener can reach it: no port is published.
    command: redis-server /etc/redis.conf --bind 0.0.0.0 --protected-mode no --dir /data
    volumes: [./redis.conf:/etc/redis.conf:ro, data:/data]
  listener:
    image: python:3.13-slim
    working_dir: /app
    command: >-
      sh -c "pip install --quiet ./expirebridge-*.whl &&
      exec expirebridge listen --tasks tasks"
    environment: {EXPIREBRIDGE_URL: redis://redis:6379/1}
    volumes: [.:/app:ro]
    depends_on: [redis]
    init: true
    restart: always
    stop_grace_period: 45s
    healthcheck:
      test: [CMD, expirebridge, check, --here, --max-overdue, 15m]
      interval: 30s
      timeout: 10s
      start_period: 60s
volumes: {data: {}}
"""


def init(
    folder: Annotated[
        Path, typer.Argument(help="The folder; created if it does not exist.")
    ] = Path(),
) -> None:
    """Start a project.

    Writes a handler, a producer, redis.conf, a systemd unit with the file of its environment, and a
    compose file; but nothing if one of the files exists.

    Example: expirebridge init reminders
    """
    command = Path(sys.executable).with_name("expirebridge")
    place = str(folder.resolve()).replace("%", "%%")
    unit = UNIT.replace("{folder}", place).replace("{command}", _quoted(str(command)))
    files = {
        "tasks/reminders.py": HANDLERS,
        "make_task.py": PRODUCER,
        "redis.conf": redis_conf().read_text(),
        "expirebridge.service": unit,
        "expirebridge.env": ENVIRONMENT,
        "compose.yaml": COMPOSE.replace("{folder}", str(folder.resolve())),
    }
    if there := [name for name in files if (folder / name).exists()]:
        typer.echo(
            f"expirebridge: {', '.join(there)}: already there; nothing was written", err=True
        )
        raise typer.Exit(NOT_POSSIBLE)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(SECRET if path.suffix == ".env" else 0o666)
        path.write_text(text)
        print_line(f"wrote {path}")
    print_line(
        f"\ncd {folder}\n"
        "redis-server redis.conf &                      # or: expirebridge server\n"
        "expirebridge listen --tasks tasks --reload &   # pip install 'expirebridge[reload]'\n"
        "python make_task.py"
    )


def _quoted(path: str) -> str:
    """The path as a word of systemd's command lines."""
    escaped = path.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if " " in path else escaped
