"""The commands with a URL of sentinels."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
import trustme

from expirebridge import AsyncBridge, Bridge
from expirebridge.embedded.server import HOST
from expirebridge.hooks import FailedOver
from expirebridge.observe.metrics import Metrics
from expirebridge.settings import Settings
from tests.kit.invoked import run
from tests.kit.sentinels import NAME, Sentinels
from tests.kit.servers import FEW, SERVERS
from tests.kit.witness import Witness, listening


@pytest.fixture
def sentinels() -> Iterator[Sentinels]:
    with Sentinels(SERVERS[FEW[0]]) as sentinels:
        yield sentinels


def test_the_commands_work(sentinels: Sentinels, tmp_path: Path) -> None:
    url, primary = sentinels.url, f"{HOST}:{sentinels.servers[0].port}"
    made = run("make", "mail.send", "[1]", "--in", "1h", "--id", "one", url=url)
    assert made.returncode == 0, made.stderr
    assert "pending    1" in run("count", url=url).stdout
    top = run("top", url=url).stdout
    assert f"/{NAME}/1?sentinel_password=*** (primary {primary})" in top
    assert "s3cret" not in top
    exported = tmp_path / "tasks.ndjson"
    assert run("export", str(exported), url=url).returncode == 0
    assert run("cancel", "one", url=url).returncode == 0
    assert run("import", str(exported), url=url).returncode == 0
    checked = run("check", url=url)
    assert checked.returncode == 1
    assert checked.stdout.startswith("not ok: no listener beats")
    granted = run("acl", "listener", url=url).stdout
    assert " +role " in granted
    assert " +role " not in run("acl", "listener").stdout


def test_the_doctor_says_which_sentinels_answer_what(sentinels: Sentinels) -> None:
    first, second = sentinels.servers
    one, two, three = sentinels.sentinels
    sentinels.until_replicating()
    examined = run("doctor", url=sentinels.url)
    assert examined.returncode == 0, examined.stdout
    assert f"ok       sentinels      3 of 3 sentinels name {HOST}:{first.port}\n" in examined.stdout
    assert "warning  failover       min-replicas-to-write is 0" in examined.stdout
    with sentinels.client(first) as client:
        client.config_set("min-replicas-to-write", 1)
    one.kill()
    examined = run("doctor", url=sentinels.url)
    assert "warning  sentinels      2 of 3 sentinels name" in examined.stdout
    assert f"{HOST}:{one.port} does not answer" in examined.stdout
    assert "ok       failover" in examined.stdout
    sentinels.misinform(two, second)
    examined = run("doctor", url=sentinels.url)
    assert (examined.returncode, examined.stdout) == (1, "")
    assert f"{HOST}:{two.port} names {HOST}:{second.port}" in examined.stderr
    assert f"{HOST}:{three.port} names {HOST}:{first.port}" in examined.stderr


@pytest.mark.rest
def test_a_wrong_name_is_one_line(sentinels: Sentinels) -> None:
    url = sentinels.url.replace(f"/{NAME}/", "/mymastr/")
    for words in (["count"], ["doctor"], ["listen", "--tasks", "tasks"]):
        result = run(*words, url=url)
        assert (result.returncode, result.stdout) == (1, ""), words
        assert "does not know 'mymastr', but 'mymaster'" in result.stderr
        assert "s3cret" not in result.stderr


def test_the_metrics_say_which_server_is_the_primary(sentinels: Sentinels) -> None:
    metrics = Metrics()
    metrics.watch(Settings(url=sentinels.url))
    metrics(FailedOver(server="b:1", before="a:1"))
    with urlopen(metrics.serve(HOST, 0)) as answer:  # noqa: S310 - our own
        lines = answer.read().decode().splitlines()
    port = sentinels.servers[0].port
    assert f'expirebridge_primary{{address="{HOST}:{port}"}} 1.0' in lines
    assert "expirebridge_failovers_total 1.0" in lines


@pytest.mark.rest
async def test_everything_over_tls(tmp_path: Path) -> None:
    binary = SERVERS.get("redis-7.0") or SERVERS.get("redis-8.0") or SERVERS.get("valkey-8.1")
    if binary is None:
        pytest.skip("needs a redis-server that is built with TLS, as Debian's are")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    leaf = authority.issue_cert(HOST)
    leaf.private_key_pem.write_to_path(tmp_path / "server.key")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    witness = Witness()

    async def note() -> None: ...

    with Sentinels(binary, tls=tmp_path) as sentinels:
        async with listening(Settings(url=sentinels.url), witness, note=note):
            async with AsyncBridge(sentinels.url) as awaits:
                await awaits.make_task("test.note", [], 0)
            await witness.until_ended(1)
            sentinels.until_in_step()
            sentinels.fail_over()
            await witness.until(lambda: witness.seen(FailedOver))
            # What is written to the old primary until it learns of that is lost with it.
            await asyncio.to_thread(sentinels.until_replicating_from, sentinels.servers[1])
            with Bridge(sentinels.url) as waits:
                waits.make_task("test.note", [], 0)
            await witness.until_ended(2)
        shown = run("count", url=sentinels.url)
        assert (shown.returncode, shown.stderr) == (0, "")
        [plain] = [sentinels.url.replace("rediss", "redis")]
        refused = run("count", url=plain.partition("&ssl")[0])
        assert refused.returncode == 1
