"""The command `expirebridge`.

Exit codes: 0 done; 1 the server failed or refused the call, or the handlers cannot be used; 2 wrong
input; 3 the task does not exist, or its state does not allow the change, or compat found tasks that
would fail; 4 a listener is stuck and must be replaced; 5 the doctor found an error.
"""

import logging

import typer

from expirebridge.cli import compat as compat_command
from expirebridge.cli import dashboard as dashboard_command
from expirebridge.cli import demo as demo_command
from expirebridge.cli import failed as failed_commands
from expirebridge.cli import figures as figure_commands
from expirebridge.cli import forecast as forecast_command
from expirebridge.cli import formats as format_command
from expirebridge.cli import functions as function_commands
from expirebridge.cli import handlers as handlers_command
from expirebridge.cli import init as init_command
from expirebridge.cli import ledger as ledger_commands
from expirebridge.cli import listen as listen_command
from expirebridge.cli import moving as moving_commands
from expirebridge.cli import operators as operator_commands
from expirebridge.cli import partitions as partition_commands
from expirebridge.cli import series as series_commands
from expirebridge.cli import server as server_command
from expirebridge.cli import tasks as task_commands
from expirebridge.cli.ending import end, leave
from expirebridge.cli.options import BAD_INPUT, FAULT, NOT_POSSIBLE, STUCK, as_typed
from expirebridge.errors import (
    ExpirebridgeError,
    InvalidSetting,
    InvalidTask,
    ListenerStuck,
    TaskExists,
)

app = typer.Typer(
    help="Tasks that run later: each is a plain Redis key with a TTL.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # it would read [server] and [default: ...] as markup
    epilog="Exit codes: 0 done; 1 the server failed or refused the call, or the handlers cannot be "
    "used; 2 wrong input; "
    "3 the task does not exist, or its state does not allow the change, or compat found tasks that "
    "would fail; 4 a listener is stuck and must be replaced; 5 the doctor found an error.",
)
task_commands.add_to(app)
operator_commands.add_to(app)
app.command("dashboard")(dashboard_command.dashboard)
figure_commands.add_to(app)
moving_commands.add_to(app)
app.command("format")(format_command.format_)
app.command("forecast")(forecast_command.forecast)
app.command("compat")(compat_command.compat)
app.command("demo")(demo_command.demo)
app.command("init")(init_command.init)
app.command("listen")(listen_command.listen)
app.command("server")(server_command.server)
app.command("handlers")(handlers_command.handlers)
app.add_typer(function_commands.group, name="functions")
app.add_typer(failed_commands.group, name="failed")
app.add_typer(ledger_commands.group, name="ledger")
app.add_typer(series_commands.group, name="series")
app.add_typer(partition_commands.group, name="partitions")
app.command("key")(partition_commands.key)


def run() -> None:
    """Run the command. An error becomes one line on stderr and an exit code."""
    if logging.lastResort is not None:  # what commands print that set up no log
        logging.lastResort.setFormatter(logging.Formatter("expirebridge: %(message)s"))
    try:
        app()
    except ListenerStuck as error:
        end(error, STUCK)
    except TaskExists as error:
        end(error, NOT_POSSIBLE)
    except InvalidTask as error:
        end(error, BAD_INPUT)
    except InvalidSetting as error:
        end(as_typed(error), BAD_INPUT)
    except ExpirebridgeError as error:
        end(error, FAULT)
    except BrokenPipeError:
        end(None, 0)
    except SystemExit as exit:
        leave(exit.code if isinstance(exit.code, int) else FAULT)
