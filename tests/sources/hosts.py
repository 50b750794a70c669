"""Where repositories are served: git's own HTTP backend behind a small server, and the real sshd."""

from __future__ import annotations

import base64
import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SSHD = shutil.which("sshd") or shutil.which("/usr/sbin/sshd")


@contextlib.contextmanager
def over_http(root: Path, user: str = "", password: str = "") -> Iterator[str]:
    """Serves the repositories below `root`; gives the URL. With a password, only to those who know it."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            said = self.headers.get("Authorization", "")
            wanted = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
            if password and said != wanted:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            path, _, query = self.path.partition("?")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            environment = {
                **os.environ,
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
            }
            answer = subprocess.run(
                ["git", "http-backend"], input=body, env=environment, capture_output=True, check=False
            ).stdout
            head, _, rest = answer.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().splitlines() if ": " in line)
            self.send_response(int(headers.pop("Status", "200").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            self.wfile.write(rest)

        do_POST = do_GET  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def redirects() -> Iterator[tuple[str, list[str]]]:
    """A host that sends everybody on, to each of these addresses in turn; the last for good. Gives its own."""
    there: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            path = self.path.removeprefix("/moved")
            self.send_response(302)
            self.send_header("Location", (there.pop(0) if len(there) > 1 else there[0]) + path)
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", there
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def over_ssh(place: Path) -> Iterator[tuple[str, str, str]]:
    """Runs sshd for one key; gives user@host:port, the private key and the line for known_hosts."""
    assert SSHD is not None
    place.mkdir(mode=0o700)
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)], check=True)
    shutil.copy(place / "client.pub", place / "authorized")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    config = place / "config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {place}/host\nPidFile none\nStrictModes no\nUsePAM no\n"
        f"AuthorizedKeysFile {place}/authorized\nPasswordAuthentication no\nSetEnv GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=*\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(config)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        host = (place / "host.pub").read_text().split()
        yield (
            f"{getpass.getuser()}@127.0.0.1:{port}",
            (place / "client").read_text(),
            f"[127.0.0.1]:{port} {host[0]} {host[1]}\n",
        )
    finally:
        process.terminate()
        process.wait(10)
