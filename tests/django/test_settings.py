"""The setting EXPIREBRIDGE of a Django project, and the checks of it."""

import pytest

from tests.kit.django_project import DjangoProject
from tests.kit.prepared_python import FreshPython

SHOW = "from expirebridge import Settings; s = Settings.read(); print(s.concurrency, s.prefix)"


def test_the_environment_goes_before_it(project: DjangoProject) -> None:
    project.expirebridge |= {"CONCURRENCY": 7, "PREFIX": "shop"}
    assert project.program(SHOW).split() == ["7", "shop"]
    assert project.program(SHOW, EXPIREBRIDGE_PREFIX="other").split() == ["7", "other"]


def test_a_duration_is_read_as_in_the_environment(project: DjangoProject) -> None:
    project.expirebridge["LEDGER_HORIZON"] = "1d"
    show = "from expirebridge import Settings; print(Settings.read().ledger_horizon)"
    assert project.program(show).split() == ["86400.0"]


def test_a_bridge_at_the_top_of_a_module_of_models_has_them(project: DjangoProject) -> None:
    project.write("shop/models.py", "from expirebridge import Bridge\nbridge = Bridge()")
    prepared, project.python = project.python, FreshPython()
    project.program("from shop.models import bridge; bridge.make_task('a.b', [], '1h')")
    project.python = prepared
    assert '"pending": 1' in project.manage("expirebridge", "count", "--json")


def test_commands_obey_it_and_their_options_go_before(project: DjangoProject) -> None:
    project.expirebridge["PREFIX"] = "shop"
    project.manage("expirebridge", "make", "a.b", "[]", "--in", "1h", "--id", "a")
    assert "a.b" in project.manage("expirebridge", "show", "a", "--settings=mysite.settings")
    other = f"{project.url.rpartition('/')[0]}/3"
    project.manage("expirebridge", "show", "a", "--url", other, code=3)


@pytest.mark.parametrize(
    ("given", "id", "words"),
    [
        ({"CONCURENCY": 7}, "E001", "['CONCURENCY'] is not a setting; did you mean 'CONCURRENCY'?"),
        ({"CONCURRENCY": 0}, "E001", "['CONCURRENCY']=0: it must be a whole number, at least 1"),
        ({"LEDGER_HORIZON": "5m"}, "E001", "['LEDGER_HORIZON']='5m': "),
        ({"LEDGER": "nowhere"}, "E001", "['LEDGER']='nowhere': no alias of DATABASES"),
        ({"MODULES": "shop.jobs"}, "E003", "['MODULES']='shop.jobs': give a list of modules"),
        ({"MODULES": ["shop.jobs"]}, "E003", "['MODULES']: there is no module shop.jobs"),
        ({"EXCLUDE": "shop"}, "E003", "['EXCLUDE']='shop': give a list of modules"),
        ({"EXCLUDE": ["shpo"]}, "E003", "['EXCLUDE']: no module of handlers is in shpo"),
        ({"URL": "localhost:6379"}, "E002", "localhost:6379"),
        ({"TASKS": "nowhere"}, "E003", "nowhere does not exist"),
    ],
)
def test_what_cannot_be_is_found_by_check(
    project: DjangoProject, given: dict[str, object], id: str, words: str
) -> None:
    project.expirebridge |= given
    told = project.manage("check", code=1)
    assert f"(expirebridge.{id})" in told
    assert words in told
    if id == "E001":
        assert "The keys of EXPIREBRIDGE are URL, " in told


def test_another_type_is_refused(project: DjangoProject) -> None:
    project.more_settings = "EXPIREBRIDGE = 'redis://localhost'"
    assert "EXPIREBRIDGE is a str: it must be a dict" in project.manage("check", code=1)
    told = project.manage("expirebridge", "count", code=2)
    assert told == "expirebridge: EXPIREBRIDGE is a str: it must be a dict\n"


def test_handlers_that_do_not_import_are_found_by_check(project: DjangoProject) -> None:
    project.write("shop/tasks.py", "1 / 0")
    told = project.manage("check", code=1)
    assert "shop/tasks.py does not import" in told
    assert "(expirebridge.E003)" in told


CELERYS = "from celery import shared_task\n@shared_task\ndef sync(): ..."


def test_a_module_of_tasks_of_another_library_can_be_left_out(project: DjangoProject) -> None:
    """An app of others has them for Celery, which is not installed here."""
    project.write("vendor/__init__.py", "")
    project.write("vendor/tasks.py", CELERYS)
    project.write("other/__init__.py", "")
    project.write("other/tasks/__init__.py", "")
    project.write("other/tasks/celerys.py", CELERYS)
    project.write("other/tasks/mail.py", "def send(): pass")
    project.write("shop/tasks.py", "def remind(): pass")
    project.more_settings = "INSTALLED_APPS += ['vendor', 'other']"
    for words in (["check"], ["migrate"], ["expirebridge", "listen"]):
        told = project.manage(*words, code=1)
        assert "celery" in told
        assert "leave it out: EXPIREBRIDGE['EXCLUDE'] = ['vendor.tasks']" in told
    project.expirebridge["EXCLUDE"] = ["vendor", "other.tasks.celerys"]
    assert "no issues" in project.manage("check")
    project.manage("migrate")
    told = project.manage("expirebridge", "handlers")
    assert "shop.remind" in told
    assert "other/mail.send" in told
    prepared, project.python = project.python, FreshPython()
    with project.listening():
        project.python = prepared
        project.manage("expirebridge", "make", "shop.remind", "[]", "--in", "0s", "--id", "a")
        project.until_state("a", "succeeded")


def test_two_modules_of_one_name_are_refused(project: DjangoProject) -> None:
    project.write("shop/tasks/jobs.py", "")
    project.write("shop/jobs.py", "")
    project.expirebridge["MODULES"] = ["shop.jobs"]
    told = project.manage("check", code=1)
    assert "shop.tasks.jobs and shop.jobs would both be 'shop/jobs' in the names of tasks" in told


def test_check_finds_nothing_in_a_good_project(project: DjangoProject) -> None:
    project.write("shop/tasks.py", "def remind(): pass")
    assert "no issues" in project.manage("check")


def test_a_folder_in_place_of_the_apps(project: DjangoProject) -> None:
    project.write("jobs/mail.py", "def send(): pass")
    project.expirebridge["TASKS"] = str(project.folder / "jobs")
    assert "mail.send" in project.manage("expirebridge", "handlers")


def test_a_settings_module_that_is_not_there_is_named(project: DjangoProject) -> None:
    project.python = FreshPython()
    told = project.run("-m", "expirebridge", "count", code=2, DJANGO_SETTINGS_MODULE="elsewhere.s")
    assert "DJANGO_SETTINGS_MODULE=elsewhere.s: there is no module elsewhere" in told


@pytest.mark.parametrize("command", [pytest.param("listen", marks=pytest.mark.rest), "handlers"])
def test_a_command_outside_of_the_project_names_it(project: DjangoProject, command: str) -> None:
    told = project.run("-m", "expirebridge", command, code=1)
    assert "start `python manage.py expirebridge ...`, or set DJANGO_SETTINGS_MODULE" in told
    (project.folder / "manage.py").unlink()
    assert "DJANGO" not in project.run("-m", "expirebridge", command, code=1)


def test_a_project_without_the_app_is_not_set_up(project: DjangoProject) -> None:
    project.more_settings = "INSTALLED_APPS = ['nowhere']"
    project.run(
        "-m", "expirebridge", "count", "--url", project.url,
        DJANGO_SETTINGS_MODULE="mysite.settings",
    )  # fmt: skip


def test_the_command_can_be_called_by_programs(project: DjangoProject) -> None:
    told = project.program(
        "from django.core.management import CommandError, call_command\n"
        "call_command('expirebridge', 'count', '--json')\n"
        "try:\n    call_command('expirebridge', 'show', 'nowhere')\n"
        "except CommandError as error:\n    print('raised', error.returncode)"
    )
    assert '"pending": 0' in told
    assert "raised 3" in told


def test_its_help_is_that_of_the_command(project: DjangoProject) -> None:
    for words in (["help", "expirebridge"], ["expirebridge", "--help"]):
        told = project.manage(*words)
        assert "Usage: manage.py expirebridge" in told
        assert "put-off" in told
