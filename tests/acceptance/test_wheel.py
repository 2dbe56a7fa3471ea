"""The wheel, installed into a clean environment, brings all that a user needs."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def test_the_wheel_holds_what_the_package_reads(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    web = ("web/static/CHECKSUMS", "web/static/dashboard.css", "web/templates/base.html")
    data = ("data/redis.conf", "data/tasks/mail.py", "store/lua/claim.lua")
    for needed in ("py.typed", *data, *web):
        assert f"expirebridge/{needed}" in names
    assert {name.partition("/")[0] for name in names if "dist-info" not in name} == {"expirebridge"}


@pytest.mark.timeout(300)
def test_an_installed_wheel_runs_the_demo_beside_packages_that_hold_redis_py_back(
    wheel: Path, tmp_path: Path
) -> None:
    """arq needs a redis-py below 6, and limits one below 8."""
    venv.create(tmp_path / "env", with_pip=True)
    bin = tmp_path / "env" / "bin"
    install = [
        str(bin / "pip"),
        "install",
        "--quiet",
        f"{wheel}[server]",
        "arq>=0.28",
        "limits[redis]",
    ]
    installed = subprocess.run(install, capture_output=True, text=True, check=False)
    assert installed.returncode == 0, installed.stderr
    demo = subprocess.run(
        [bin / "expirebridge", "demo"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stdout.count("\nok ") == 6
