"""`make release-check`: all of a release that can be done without publishing it.

Works on a clean clone of HEAD, runs every step although another one failed, and exits with 1 if any
did. It leaves the wheel, the source distribution, the SBOM and their checksums in dist/. With names
of steps as arguments, it runs only these, and leaves nothing.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
EXTRAS = "server,sql,typed"
CHECKERS = """
[tool.pyright]
typeCheckingMode = "strict"
enableTypeIgnoreComments = true
reportUnnecessaryTypeIgnoreComment = true
reportUnusedFunction = false
"""


class Failed(Exception):
    """A step found a fault: the message says which, and what to do."""


class Release:
    """What the steps share: a clean clone, and what was built of it."""

    def __init__(self, work: Path, tag: str | None) -> None:
        self.work = work
        self.asked_tag = tag
        self.clone = work / "clone"
        run("git", "clone", "--quiet", f"file://{ROOT}", str(self.clone))
        self.project = tomllib.loads((self.clone / "pyproject.toml").read_text())["project"]
        self.version = str(self.project["version"])
        self.epoch = run("git", "log", "-1", "--format=%ct", cwd=self.clone).strip()
        self.dist = work / "dist"

    @property
    def wheel(self) -> Path:
        """The wheel; Failed if it could not be built."""
        return only(self.dist, "*.whl")

    @property
    def sdist(self) -> Path:
        """The source distribution; Failed if it could not be built."""
        return only(self.dist, "*.tar.gz")

    def metadata(self) -> Message:
        """That of the wheel."""
        with zipfile.ZipFile(self.wheel) as archive:
            [name] = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
            return message_from_bytes(archive.read(name))


def run(
    *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] = MappingProxyType({})
) -> str:
    """The output of a command; Failed, with the end of what it said, unless it exits with 0."""
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**surroundings, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise Failed(f"{' '.join(map(str, words[:6]))}: exit code {done.returncode}\n{said}")
    return done.stdout


def only(folder: Path, pattern: str) -> Path:
    """The one file of this name in a folder."""
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise Failed(f"{pattern}: nothing was built: add the step build, or see why it failed")
    return found[0]


def tree(_: Release) -> str:
    """Is the work tree clean? What is not committed would not be released."""
    changed = run("git", "status", "--porcelain", cwd=ROOT).splitlines()
    if changed:
        raise Failed(f"not committed: {', '.join(line[3:] for line in changed[:5])}")
    return f"commit {run('git', 'rev-parse', '--short', 'HEAD', cwd=ROOT).strip()}"


def tags(release: Release) -> str:
    """Does the tag name the version, and is the version not released yet?"""
    wanted = f"v{release.version}"
    here = run("git", "tag", "--points-at", "HEAD", cwd=ROOT).split()
    named = [*filter(None, [release.asked_tag]), *(one for one in here if one.startswith("v"))]
    if wrong := [one for one in named if one != wanted]:
        raise Failed(f"the tag is {wrong[0]}, and pyproject.toml asks for {wanted}")
    elsewhere = run("git", "tag", "--list", wanted, cwd=ROOT).split()
    if elsewhere and wanted not in here:
        raise Failed(f"{wanted} is another commit: give pyproject.toml the next version")
    return f"{wanted} is HEAD" if wanted in here else f"no tag yet; it will be {wanted}"


def changelog(release: Release) -> str:
    """Has CHANGELOG.md a section of this version, and a date once there is a tag?"""
    text = (release.clone / "CHANGELOG.md").read_text()
    heading = rf"^## \[{re.escape(release.version)}\] - (\S+)$(.*?)(?=^## |\Z)"
    found = re.search(heading, text, re.MULTILINE | re.DOTALL)
    if not found:
        raise Failed(f"CHANGELOG.md has no section '## [{release.version}] - <date>'")
    when, body = found[1], found[2].strip()
    if not body:
        raise Failed(f"the section of {release.version} in CHANGELOG.md is empty")
    is_date = re.fullmatch(r"\d{4}-\d\d-\d\d", when) is not None
    if not is_date and when != "unreleased":
        raise Failed(
            f"CHANGELOG.md, {release.version}: '{when}' is neither a date nor 'unreleased'"
        )
    tagged = (
        release.asked_tag
        or f"v{release.version}" in run("git", "tag", "--points-at", "HEAD", cwd=ROOT).split()
    )
    if tagged and not is_date:
        raise Failed(
            f"CHANGELOG.md says that {release.version} is unreleased, and there is a tag: "
            "put the date in"
        )
    return f"{release.version}, {when}"


def build(release: Release) -> str:
    """Built again elsewhere, are wheel and sdist the same? And the wheel that the sdist makes?"""
    first, second, third = (release.work / name for name in ("one", "a/longer/path/two", "three"))
    builder = (BIN / "python", "-m", "build", "--installer", "uv")
    run("git", "clone", "--quiet", str(release.clone), second)
    for path in second.rglob("*"):
        if path.is_file() and ".git" not in path.parts:
            os.utime(path, (1, 1))
            path.chmod(path.stat().st_mode & 0o700)
    plain, other = (
        {"SOURCE_DATE_EPOCH": release.epoch},
        {"TZ": "Asia/Kolkata", "PYTHONHASHSEED": "7"},
    )
    run(*builder, "--sdist", "--wheel", "--outdir", first, release.clone, env=plain)
    run(*builder, "--sdist", "--wheel", "--outdir", second / "dist", second, env=plain | other)
    with tarfile.open(only(first, "*.tar.gz")) as archive:
        archive.extractall(third, filter="data")
    run(*builder, "--wheel", "--outdir", third / "dist", only(third, "expirebridge-*"), env=plain)
    release.dist.mkdir()
    for each in first.iterdir():
        shutil.copy(each, release.dist)
    for one, what in ((second / "dist", "built again"), (third / "dist", "built of the sdist")):
        for again in one.iterdir():
            if again.read_bytes() != (first / again.name).read_bytes():
                names = differing(first / again.name, again)
                raise Failed(f"{again.name} differs when it is {what}: {names}")
    return f"{release.wheel.name} and {release.sdist.name} are equal, byte for byte"


def differing(one: Path, other: Path) -> str:
    """The first files in which two archives differ."""
    held, again = contents(one), contents(other)
    names = sorted(name for name in {*held, *again} if held.get(name) != again.get(name))
    return ", ".join(names[:5]) or "only times, modes or the order of files"


def contents(archive: Path) -> dict[str, bytes]:
    """What an archive holds, by name."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    with tarfile.open(archive) as sdist:
        files = {one.name: sdist.extractfile(one) for one in sdist if one.isfile()}
        return {name: file.read() for name, file in files.items() if file}


def metadata(release: Release) -> str:
    """Do the metadata name the same version, and does twine accept them?"""
    found = release.metadata()
    if found["Version"] != release.version:
        raise Failed(f"the wheel says {found['Version']}, pyproject.toml {release.version}")
    run(BIN / "twine", "check", "--strict", release.wheel, release.sdist)
    return "twine check --strict"


def page(release: Release) -> str:
    """Does an index render README, and do its links lead anywhere?"""
    readme = str(release.metadata().get_payload())
    from readme_renderer.markdown import render  # noqa: PLC0415 - only here

    html = render(readme)
    if not html or "<h1" not in html:
        raise Failed("README.md is not rendered")
    relative = [
        one
        for one in re.findall(r'(?:href|src)="([^"]*)"', html)
        if not one.startswith(("https://", "#"))
    ]
    if relative:
        raise Failed(f"on the page of an index, links lead nowhere: {', '.join(relative[:5])}")
    return "README as an index shows it"


def licences(release: Release) -> str:
    """Does the wheel hold its licence, and that of each file in it that others wrote?"""
    with zipfile.ZipFile(release.wheel) as archive:
        names = archive.namelist()
    held = {Path(name).name for name in names if ".dist-info/licenses/" in name}
    bundled = [Path(name).name for name in names if name.endswith(".min.js")]
    missing = {"LICENSE", *(name.replace(".min.js", ".LICENSE.txt") for name in bundled)} - held
    if missing:
        raise Failed(f"not among the licences of the wheel: {', '.join(sorted(missing))}")
    return f"{len(held)} licences, for {len(bundled)} files of others"


def installed(release: Release) -> str:
    """Does the wheel work in a clean environment of each Python that is found?"""
    tried = []
    for version in VERSIONS:
        python = run(ROOT / ".ci" / "find-python", version).strip()
        if not python:
            continue
        bin = environment(python, f"{release.wheel}[{EXTRAS}]", release.work / f"env-{version}")
        printed = run(bin / "expirebridge", "--version", cwd=release.work).strip()
        if printed != f"expirebridge {release.version}":
            raise Failed(f"Python {version}: --version prints '{printed}'")
        run(bin / "expirebridge", "demo", cwd=release.work)
        tried.append(version)
    if not tried:
        raise Failed(f"no Python of {', '.join(VERSIONS)} was found")
    return f"demo on Python {', '.join(tried)}"


def environment(python: str | Path, package: str | Path, folder: Path) -> Path:
    """A new environment with a package; returns where its programs are."""
    run(BIN / "uv", "venv", "--quiet", "--python", python, folder)
    run(BIN / "uv", "pip", "install", "--quiet", "--python", folder / "bin" / "python", package)
    return folder / "bin"


def types(release: Release) -> str:
    """Do type checkers see the types of the installed wheel: right uses and wrong ones?"""
    bin = environment(sys.executable, f"{release.wheel}[{EXTRAS}]", release.work / "env-types")
    folder = release.work / "types"
    folder.mkdir()
    # Each wrong use is marked, and a mark where nothing is wrong is an error.
    shutil.copy(release.clone / "tests" / "acceptance" / "static_calls.py", folder / "uses.py")
    (folder / "pyproject.toml").write_text(CHECKERS)
    python = bin / "python"
    run(BIN / "mypy", "--strict", "--python-executable", python, "uses.py", cwd=folder)
    run(BIN / "pyright", "--pythonpath", python, "uses.py", cwd=folder)
    return "mypy --strict and pyright"


def sbom(release: Release) -> str:
    """What the wheel brings with it, as CycloneDX."""
    bin = environment(sys.executable, release.wheel, release.work / "env-sbom")
    file = release.dist / f"expirebridge-{release.version}.cdx.json"
    run(
        BIN / "cyclonedx-py", "environment", "--pyproject", release.clone / "pyproject.toml",
        "--mc-type", "library", "--output-reproducible", "--output-format", "JSON",
        "--output-file", file, "--validate", bin / "python",
    )  # fmt: skip
    components = {one["name"] for one in json.loads(file.read_text())["components"]}
    needed = {re.split(r"[^\w-]", one)[0] for one in release.project["dependencies"]}
    if missing := needed - components:
        raise Failed(f"not in the SBOM: {', '.join(sorted(missing))}")
    return f"{len(components)} packages, valid CycloneDX"


STEPS: tuple[Callable[[Release], str], ...] = (
    tree, tags, changelog, build, metadata, page, licences, types, sbom, installed,
)  # fmt: skip


def check(release: Release, steps: Sequence[Callable[[Release], str]]) -> int:
    """Run these steps; returns how many failed."""
    failures = 0
    for step in steps:
        began = time.monotonic()
        try:
            told = f"ok    {step.__name__}: {step(release)}"
        except Failed as failure:
            failures += 1
            told = f"FAIL  {step.__name__}: {failure}"
        print(f"{told} ({time.monotonic() - began:.0f} s)", flush=True)
    return failures


def keep(release: Release) -> None:
    """Put what was built into dist/, with checksums."""
    target = ROOT / "dist"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(release.dist, target)
    sums = [
        f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}"
        for one in sorted(target.iterdir())
    ]
    (target / "SHA256SUMS").write_text("\n".join(sums) + "\n")


def by_hand() -> str:
    """What is left to people: a chapter of the page."""
    text = (ROOT / "docs" / "internals" / "releasing.md").read_text()
    return text.partition("## By hand\n")[2].partition("\n## ")[0].strip()


def main() -> int:
    """The command."""
    names = sys.argv[1:]
    if unknown := set(names) - {step.__name__ for step in STEPS}:
        print(f"no such step: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    steps = [step for step in STEPS if not names or step.__name__ in names]
    with tempfile.TemporaryDirectory(prefix="release-") as work:
        release = Release(Path(work), os.environ.get("TAG") or None)
        failures = check(release, steps)
        if failures:
            print(f"\n{failures} of {len(steps)} steps failed")
            return 1
        if names:
            return 0
        keep(release)
    print(f"\nAll is in dist/. By hand (docs/internals/releasing.md):\n{by_hand()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
