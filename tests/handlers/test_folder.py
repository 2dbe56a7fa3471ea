"""Where handlers live: the names under which the modules of a tasks folder are imported."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from expirebridge.errors import HandlersError
from expirebridge.handlers import Registry, name_of
from expirebridge.handlers.loading import HandlersFolder
from tests.kit.modules import forgotten, put


@pytest.fixture(autouse=True)
def _forget(tmp_path: Path) -> Iterator[None]:
    with forgotten(tmp_path):
        yield


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The root of a project whose package `shop_` holds its tasks; the web part uses them."""
    put(tmp_path, "shop_/__init__.py", "")
    put(tmp_path, "shop_/prices.py", "def price(): return 17")
    put(tmp_path, "shop_/tasks/__init__.py", "")
    put(tmp_path, "shop_/tasks/mail.py", """
        from shop_.prices import price
        from ..prices import price as same
        from .texts import text
        def send(): return price(), price is same, text()
        """)  # fmt: skip
    put(tmp_path, "shop_/tasks/texts.py", "def text(): return 'hi'")
    put(tmp_path, "shop_/web.py", "from shop_.tasks.mail import send")
    return tmp_path


def module_of(registry: Registry, name: str) -> str:
    handler = registry.find(name)
    assert handler is not None
    return handler.function.__module__


def test_modules_have_the_names_that_the_rest_of_the_package_uses(shop: Path) -> None:
    registry = Registry.load(shop / "shop_/tasks")
    assert [handler.name for handler in registry] == ["mail.send", "texts.text"]
    send = registry.find("mail.send")
    assert send is not None
    assert send.module == "shop_.tasks.mail"
    assert send.function() == (17, True, "hi")


def test_the_web_part_and_the_registry_have_the_same_function(shop: Path) -> None:
    sys.path.insert(0, str(shop))
    web = importlib.import_module("shop_.web")
    folder = shop / "shop_/tasks"
    send = Registry.load(folder).find("mail.send")
    assert send is not None
    assert send.function is web.send
    assert name_of(web.send, folder) == "mail.send"


def test_a_folder_without_a_package_above_it_is_a_package_itself(tmp_path: Path) -> None:
    put(
        tmp_path,
        "jobs_/mail.py",
        "from jobs_.texts import text\nfrom beside_ import x\ndef send(): ...",
    )
    put(tmp_path, "jobs_/texts.py", "def text(): ...")
    put(tmp_path, "beside_.py", "x = 1")
    assert module_of(Registry.load(tmp_path / "jobs_"), "mail.send") == "jobs_.mail"


@pytest.mark.parametrize("app_dir", [None, "src", "src/company_/shop_"])
def test_the_directory_above_all_packages_is_found_or_named(
    tmp_path: Path, app_dir: str | None
) -> None:
    put(tmp_path, "src/company_/shop_/__init__.py", "")
    put(tmp_path, "src/company_/shop_/jobs_/mail.py")
    registry = Registry.load(
        tmp_path / "src/company_/shop_/jobs_", app_dir=tmp_path / app_dir if app_dir else None
    )
    names = {
        None: "shop_.jobs_.mail",
        "src": "company_.shop_.jobs_.mail",  # company_ is a namespace package
        "src/company_/shop_": "jobs_.mail",
    }
    assert module_of(registry, "mail.send") == names[app_dir]


@pytest.mark.parametrize("imported", [False, True])
def test_a_namespace_package_keeps_its_other_portions(tmp_path: Path, imported: bool) -> None:
    put(tmp_path, "library/company_/lib.py", "x = 1")
    put(tmp_path, "project/company_/jobs/mail.py", "from company_.lib import x\ndef send(): ...")
    sys.path.insert(0, str(tmp_path / "library"))
    if imported:
        importlib.import_module("company_.lib")
    registry = Registry.load(tmp_path / "project/company_/jobs", app_dir=tmp_path / "project")
    assert module_of(registry, "mail.send") == "company_.jobs.mail"


def test_a_folder_that_no_module_can_be_imported_from_ends_the_search(tmp_path: Path) -> None:
    put(tmp_path, "my-project/__init__.py", "")
    put(tmp_path, "my-project/shop_/__init__.py", "")
    put(tmp_path, "my-project/shop_/jobs/mail.py")
    folder = HandlersFolder.at(tmp_path / "my-project/shop_/jobs")
    assert (folder.app_dir, folder.package) == (tmp_path / "my-project", "shop_.jobs")
    assert folder.outermost == tmp_path / "my-project/shop_"


def test_two_folders_of_one_project_can_be_loaded(shop: Path) -> None:
    put(shop, "billing_/__init__.py", "")
    put(shop, "billing_/tasks/mail.py")
    first = Registry.load(shop / "shop_/tasks")
    second = Registry.load(shop / "billing_/tasks")
    assert module_of(first, "mail.send") == "shop_.tasks.mail"
    assert module_of(second, "mail.send") == "billing_.tasks.mail"


def test_a_package_of_the_same_name_elsewhere_is_named(shop: Path) -> None:
    other = put(shop, "other/shop_/__init__.py", "").parent
    put(other, "tasks/mail.py")
    Registry.load(shop / "shop_/tasks")
    with pytest.raises(
        HandlersError, match=rf"package {other} is hidden by {shop}/shop_/__init__\.py"
    ):
        Registry.load(other / "tasks")


@pytest.mark.parametrize("name", ["email", "time", "json"])
def test_a_folder_with_the_name_of_a_module_of_python_is_refused(tmp_path: Path, name: str) -> None:
    put(tmp_path, f"{name}/mail.py")
    with pytest.raises(HandlersError, match=rf"{tmp_path}/{name} is hidden by .*{name}"):
        Registry.load(tmp_path / name)
    assert importlib.import_module(name).__name__ == name
    assert not hasattr(sys.modules[name], "mail")


def test_inside_of_a_package_a_name_of_python_hides_nothing(shop: Path) -> None:
    put(shop, "shop_/email/__init__.py", "")
    put(shop, "shop_/email/json.py", "import json\ndef send(): return json.dumps([1])")
    send = Registry.load(shop / "shop_/email").find("json.send")
    assert send is not None
    assert send.module == "shop_.email.json"
    assert send.function() == "[1]"
    assert importlib.import_module("json").dumps([1]) == "[1]"


# Links


def test_a_link_to_the_folder_has_its_own_place_among_packages(shop: Path) -> None:
    common = put(shop, "common/jobs/mail.py").parent
    (shop / "shop_" / "jobs").symlink_to(common)
    registry = Registry.load(shop / "shop_/jobs")
    assert module_of(registry, "mail.send") == "shop_.jobs.mail"
    send = registry.find("mail.send")
    assert send is not None
    # A producer may name the folder by its link, or without.
    assert name_of(send.function, shop / "shop_/jobs") == "mail.send"
    assert name_of(send.function, common) == "mail.send"


def test_a_project_may_be_behind_a_link(shop: Path) -> None:
    (shop / "current").symlink_to(shop)
    registry = Registry.load(shop / "current/shop_/tasks")
    assert module_of(registry, "mail.send") == "shop_.tasks.mail"


@pytest.mark.parametrize("by_link", ["tasks", "app_dir"])
def test_the_app_dir_may_be_named_by_a_link(shop: Path, by_link: str) -> None:
    link = shop.with_name(f"{shop.name}-current")
    link.symlink_to(shop)
    tasks, app_dir = (link, shop) if by_link == "tasks" else (shop, link)
    registry = Registry.load(tasks / "shop_/tasks", app_dir=app_dir)
    assert module_of(registry, "mail.send") == "shop_.tasks.mail"


def test_two_dots_after_a_link_lead_where_the_system_leads(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(shop, "elsewhere/jobs_/mail.py")
    put(shop, "elsewhere/deep/x.py")
    (shop / "link").symlink_to(shop / "elsewhere/deep")
    folder = HandlersFolder.at(shop / "link" / ".." / "jobs_")
    assert folder.path == shop / "elsewhere/jobs_"


# Bad input


@pytest.mark.parametrize("app_dir", ["other", "missing", "shop_/tasks", "shop_/tasks/eu"])
def test_an_app_dir_that_the_folder_is_not_below_is_refused(shop: Path, app_dir: str) -> None:
    put(shop, "other/x.py")
    put(shop, "shop_/tasks/eu/x.py")
    with pytest.raises(HandlersError) as caught:
        Registry.load(shop / "shop_/tasks", app_dir=shop / app_dir)
    assert str(caught.value).startswith(
        f"--app-dir {shop / app_dir}: the handlers' folder {shop}/shop_/tasks is not below it"
    )
    assert "shop_" not in sys.modules


def test_each_directory_below_the_app_dir_is_named_like_a_package(tmp_path: Path) -> None:
    put(tmp_path, "my-shop/jobs/mail.py")
    with pytest.raises(HandlersError, match=rf"{tmp_path}/my-shop must be named like a Python"):
        Registry.load(tmp_path / "my-shop/jobs", app_dir=tmp_path)


def test_a_package_above_that_does_not_import_is_named(shop: Path) -> None:
    file = put(shop, "shop_/__init__.py", "1 / 0")
    with pytest.raises(HandlersError, match=rf"^{file} does not import:\n(.|\n)*ZeroDivision"):
        Registry.load(shop / "shop_/tasks")


def test_a_module_that_is_imported_under_two_names_is_refused(tmp_path: Path) -> None:
    """Without an `__init__.py` nothing shows that `company_` is a package, until it is imported."""
    put(tmp_path, "company_/jobs_/mail.py")
    put(tmp_path, "company_/jobs_/orders.py", """
        from company_.jobs_.mail import send as relay
        def rate(): ...
        """)  # fmt: skip
    sys.path.insert(0, str(tmp_path))
    folder = tmp_path / "company_/jobs_"
    with pytest.raises(HandlersError) as caught:
        Registry.load(folder)
    assert str(caught.value).startswith(
        f"{folder}/mail.py is imported twice, as jobs_.mail and as company_.jobs_.mail"
    )
    assert f"--app-dir {tmp_path}" in str(caught.value)


@pytest.mark.parametrize("name", ["mail", "a.copy.of.a.module.whose.name.is.very.long.indeed"])
def test_a_second_name_that_no_app_dir_gives_is_refused_without_one(shop: Path, name: str) -> None:
    path = shop / "shop_/tasks/mail.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    with pytest.raises(HandlersError) as caught:
        Registry.load(shop / "shop_/tasks")
    assert str(caught.value) == (
        f"{path} is imported twice, as shop_.tasks.mail and as {name}: import it under the first "
        "name only"
    )


def test_lazy_modules_of_others_are_left_alone(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as those of six: to ask one for its file imports what may not be there."""

    class Lazy(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise ImportError(name)

    monkeypatch.setitem(sys.modules, "lazy_", Lazy("lazy_"))
    monkeypatch.setitem(sys.modules, "blocked_", None)  # no import finds it
    assert len(Registry.load(shop / "shop_/tasks")) == 2


def test_what_it_suggests_for_two_names_works(tmp_path: Path) -> None:
    test_a_module_that_is_imported_under_two_names_is_refused(tmp_path)
    for name in [name for name in sys.modules if name.startswith(("company_", "jobs_"))]:
        del sys.modules[name]
    registry = Registry.load(tmp_path / "company_/jobs_", app_dir=tmp_path)
    assert module_of(registry, "orders.rate") == "company_.jobs_.orders"


def test_a_relative_folder_is_below_the_working_directory(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop / "shop_")
    folder = HandlersFolder.at(Path("tasks"), Path(os.pardir))
    assert (folder.app_dir, folder.package) == (shop, "shop_.tasks")
