"""The wheel, installed into a clean environment, brings all that a user needs."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(300)
def test_an_installed_wheel_runs_the_demo(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    web = ("web/static/CHECKSUMS", "web/static/dashboard.css", "web/templates/base.html")
    data = ("data/redis.conf", "data/tasks/mail.py", "store/lua/claim.lua")
    for needed in ("py.typed", *data, *web):
        assert f"expirebridge/{needed}" in names
    assert {name.partition("/")[0] for name in names if "dist-info" not in name} == {"expirebridge"}
    venv.create(tmp_path / "env", with_pip=True)
    bin = tmp_path / "env" / "bin"
    install = [str(bin / "pip"), "install", "--quiet", f"{wheel}[server]"]
    subprocess.run(install, check=True, capture_output=True)
    demo = subprocess.run(
        [bin / "expirebridge", "demo"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stdout.count("\nok ") == 6
