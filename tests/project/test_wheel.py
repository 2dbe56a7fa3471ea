"""The wheel, installed into a clean environment, brings all that a user needs."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.kit.lua import FILES

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parents[2]
# uv makes environments, here and within build: pip takes half a minute for each.
UV = [sys.executable, "-m", "uv", "--quiet"]
BUILD = [sys.executable, "-m", "build", "--installer", "uv"]


def environment(folder: Path, *packages: str) -> Path:
    """Install packages into a new environment; returns where its programs are."""
    subprocess.run([*UV, "venv", "--python", sys.executable, folder], check=True)
    install = [*UV, "pip", "install", "--python", str(folder / "bin" / "python"), *packages]
    installed = subprocess.run(install, capture_output=True, text=True, check=False)
    assert installed.returncode == 0, installed.stderr
    return folder / "bin"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [*BUILD, "--wheel", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def test_the_wheel_holds_what_the_package_reads(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    web = ("web/static/CHECKSUMS", "web/static/dashboard.css", "web/templates/base.html")
    data = ("data/redis.conf", "data/tasks/mail.py", "testing/shift.lua")
    lua = [path.relative_to(ROOT).as_posix() for path in FILES]
    assert len(lua) > 80
    assert {*lua} <= {*names}
    for needed in ("py.typed", *data, *web):
        assert f"expirebridge/{needed}" in names
    assert {name.partition("/")[0] for name in names if "dist-info" not in name} == {"expirebridge"}


def test_the_page_of_an_index_has_no_link_that_leads_nowhere(wheel: Path) -> None:
    [metadata] = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/METADATA")]
    page = zipfile.ZipFile(wheel).read(metadata).decode()
    assert "Description-Content-Type: text/markdown" in page
    assert re.findall(r"\]\((?!https://)[^)]*\)", page) == []
    assert "next to eleven other libraries" in page
    assert "pip install '.[server]'" in page


def test_the_source_distribution_holds_all_that_its_tests_read(tmp_path: Path) -> None:
    build = [*BUILD, "--sdist", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    [sdist] = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    folders = (
        ".ci", ".github", "benchmarks", "deploy", "docs", "examples", "expirebridge", "tasks",
        "tests", "website",
    )  # fmt: skip
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [path for path in ROOT.glob("[A-Zrp]*") if path.is_file()]
    made = {"__pycache__", "node_modules"}
    there = {str(path.relative_to(ROOT)) for path in files if not made & set(path.parts)}
    assert {"CONTRIBUTING.md", "Makefile", "docs/how-to/make-tasks.md", ".ci/run"} <= there
    assert there - held == set()


def test_an_installed_wheel_runs_the_demo_beside_packages_that_hold_redis_py_back(
    wheel: Path, tmp_path: Path
) -> None:
    """arq needs a redis-py below 6, and limits one below 8."""
    bin = environment(tmp_path / "env", f"{wheel}[server]", "arq>=0.28", "limits[redis]")
    demo = subprocess.run(
        [bin / "expirebridge", "demo"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stdout.count("\nok ") == 6


LEDGER = """
from sqlalchemy import create_engine
from expirebridge.ledger import Ledger

engine = create_engine("sqlite:///ledger.db")
ledger = Ledger(engine)
ledger.create()
with engine.begin() as connection:
    print(ledger.make_task(connection, "mail.send", [42], "24h", id="a").id)
"""


def test_the_ledger_needs_no_more_than_its_extra(wheel: Path, tmp_path: Path) -> None:
    bin = environment(tmp_path / "env", f"{wheel}[sql]")
    made = subprocess.run(
        [bin / "python", "-c", LEDGER], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (made.returncode, made.stdout) == (0, "a\n"), made.stderr
