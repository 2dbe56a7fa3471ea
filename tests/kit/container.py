"""A server in Docker.

The image is EXPIREBRIDGE_TEST_IMAGE, or else an official one, which Docker fetches once. It takes
the name of a configuration and options as its command, as the official images of Redis and Valkey
do.

The container has the machine's own network, so that the server listens on loopback only, as it is
configured, and nothing of it can be reached from elsewhere. So the engine must be this machine's.

Docker's client is imported by what needs it: no run of the quick part does.
"""

import os
import socket
from contextlib import closing
from typing import Self

from expirebridge.embedded.resources import redis_conf
from expirebridge.embedded.server import HOST, free_port

IMAGE = os.environ.get("EXPIREBRIDGE_TEST_IMAGE", "redis:8")
CONFIGURATION = "/redis.conf"


def can_run() -> bool:
    """Whether this machine's Docker engine answers, and has the image or can fetch it."""
    if not answers():
        return False
    import docker
    from docker.errors import DockerException, ImageNotFound

    with closing(docker.from_env()) as engine:
        try:
            engine.images.get(IMAGE)
        except ImageNotFound:
            try:
                engine.images.pull(IMAGE)
            except DockerException:
                return False
    return True


def answers() -> bool:
    """Whether this machine's Docker engine answers."""
    # Docker's client would leave a socket open if nobody answered.
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(address.removeprefix("unix://"))
        except OSError:
            return False
    return True


def version() -> str:
    """What the server in the image says of itself."""
    import docker

    with closing(docker.from_env()) as engine:
        said = engine.containers.run(IMAGE, ["--version"], network_mode="none", remove=True)
    return f"{said.decode().strip()} (image {IMAGE})"


class Container:
    """One server in Docker with expirebridge's redis.conf, removed when its `with` block ends."""

    def __init__(self) -> None:
        from testcontainers.core.container import DockerContainer
        from testcontainers.core.wait_strategies import LogMessageWaitStrategy

        self.port = free_port()
        self._container = (
            DockerContainer(IMAGE)
            .with_kwargs(network_mode="host")
            .with_copy_into_container(redis_conf(), CONFIGURATION)
            .with_command([CONFIGURATION, "--port", str(self.port)])
            .waiting_for(LogMessageWaitStrategy("Ready to accept connections"))
        )

    @property
    def url(self) -> str:
        """The URL of its database 1."""
        return f"redis://{HOST}:{self.port}/1"

    def __enter__(self) -> Self:
        self._container.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._container.stop()
