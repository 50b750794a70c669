"""A server of its own process, as people run it, and clients that do not behave."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.conformance.conftest import Api, Credentials, make_namespace

UNDISTURBED = 0.25
"""Seconds within which an ordinary request is answered, whatever others do."""


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of a running server."""
    data = tmp_path_factory.mktemp("server") / "data"
    command = [sys.executable, "-m", "homeostat", "up", "--data", str(data), "--listen", "127.0.0.1:0"]
    log = data.parent / "server.log"
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as server:
        end = time.monotonic() + 20
        while "is ready at" not in log.read_text():
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.02)
        try:
            yield data
        finally:
            server.terminate()
            server.wait(20)
    assert not re.search(r"(?m)^.* (ERROR|CRITICAL) .*$|Traceback", log.read_text()), log.read_text()


@pytest.fixture(scope="session")
def credentials(data: Path) -> Credentials:
    return Credentials.read(data / "admin.kubeconfig")


@pytest.fixture(scope="session")
def api(credentials: Credentials) -> Iterator[Api]:
    """The administrator."""
    client = Api(credentials)
    yield client
    client.close()


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    name = make_namespace(api, "bad-")
    yield name
    api.delete(f"/api/v1/namespaces/{name}")


class Neighbour:
    """Somebody with ordinary requests: reads and writes a small object again and again, and notes how long each takes."""

    def __init__(self, credentials: Credentials) -> None:
        self._api = Api(credentials)
        self._api.post("/api/v1/namespaces/default/configmaps", _small("0"))
        self.path = "/api/v1/namespaces/default/configmaps/neighbour"
        self.took: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)

    def _live(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            started = time.perf_counter()
            self._api.get(self.path).expect(200)
            middle = time.perf_counter()
            self._api.put(self.path, _small(str(number))).expect(200)
            self.took += (middle - started, time.perf_counter() - middle)
            self._stop.wait(0.005)

    def __enter__(self) -> Neighbour:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._api.close()

    def was_undisturbed(self) -> None:
        """Every request was quick, but for one in twenty at most: the machine has other things to do as well."""
        slow = sorted(t for t in self.took if t > UNDISTURBED)
        assert self.took
        assert len(slow) <= max(1, len(self.took) // 20), f"{len(slow)} of {len(self.took)} ordinary requests waited: {slow[-5:]}"
        assert not slow or slow[0] < 4 * UNDISTURBED, slow


def _small(value: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "neighbour"}, "data": {"n": value}}


@pytest.fixture
def neighbour(credentials: Credentials) -> Iterator[Neighbour]:
    """Lives beside the test, and complains after it where it was kept waiting."""
    with Neighbour(credentials) as somebody:
        yield somebody
    somebody.was_undisturbed()


class Wire:
    """Bytes to the server and back, as the administrator; no HTTP library smooths them."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def connect(self) -> socket.socket:
        parts = urlsplit(self._credentials.server)
        assert self._credentials.tls
        plain = socket.create_connection((parts.hostname, parts.port), timeout=5)
        return self._credentials.tls.wrap_socket(plain, server_hostname=parts.hostname)

    def send(self, data: bytes, silence: float = 1.0) -> bytes:
        """Everything the server says until it closes, means to close, or says nothing for a while."""
        with contextlib.closing(self.connect()) as peer:
            with contextlib.suppress(OSError):
                peer.sendall(data)
            peer.settimeout(silence)
            received = b""
            with contextlib.suppress(TimeoutError, OSError):
                while not _is_last(received) and (piece := peer.recv(65536)):
                    received += piece
            return received


def _is_last(received: bytes) -> bool:
    """A whole answer, after which the server listens no more on this connection."""
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return b"connection: close" in head and length is not None and len(body) >= int(length[1])


@pytest.fixture(scope="session")
def wire(credentials: Credentials) -> Wire:
    return Wire(credentials)
