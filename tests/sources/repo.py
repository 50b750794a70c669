"""A real repository, written with the real git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
}


class Repo:
    """`write` files, `commit` them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str, **environment: str) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=self.path,
            env={**os.environ, **_ENVIRONMENT, **environment},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def write(self, files: dict[str, str | None]) -> None:
        for name, text in files.items():
            place = self.path / name
            if text is None:
                place.unlink()
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text)

    def commit(self, files: dict[str, str | None], message: str = "change", *options: str, **environment: str) -> str:
        """Writes and commits; gives the commit."""
        self.write(files)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message, *options, **environment)
        return self.git("rev-parse", "HEAD")


def config_map(name: str, value: str = "1", namespace: str = "", **annotations: str) -> str:
    """A manifest."""
    where = f"  namespace: {namespace}\n" if namespace else ""
    notes = "".join(f'    homeostat.dev/{key}: "{text}"\n' for key, text in annotations.items())
    said = f"  annotations:\n{notes}" if notes else ""
    return f'apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n{where}{said}data:\n  value: "{value}"\n'
