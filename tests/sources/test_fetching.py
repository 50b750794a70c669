"""Repositories as they are served: over HTTP and SSH, with credentials, tags, signatures, limits and bounds."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import subprocess
import threading
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from tests.loop.waiting import said
from tests.sources.conftest import Bench
from tests.sources.hosts import SSHD, over_http, over_ssh, redirects
from tests.sources.repo import Repo, config_map

from homeostat.cli.allow import Allowed
from homeostat.providers.addresses import Forbidden
from homeostat.sources.choosing import NoSuchRevision, choose, in_range, parse_version
from homeostat.sources.fetching import Bounds
from homeostat.sources.kinds import Revision
from homeostat.sources.repository import NOBODY, Allowance, Credentials, GitFailure, Repository

Object = dict[str, Any]


async def secret(bench: Bench, name: str, **data: str) -> None:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    await bench.client.kind("v1", "Secret", namespace="default").create({"metadata": {"name": name}, "data": encoded})


async def source_says(bench: Bench, reason: str) -> Object:
    found: Object = {}

    async def so() -> bool:
        nonlocal found
        found = await bench.sources.get("repo")
        return bool(said(found).get("reason") == reason)

    await bench.eventually(so, f"the source with {reason}")
    return found


# Which commit


def test_the_newest_tag_in_a_range_counts() -> None:
    heads = {f"refs/tags/{tag}": tag for tag in ("v1.2.0", "v1.10.0", "v2.0.0-rc.1", "v2.0.0", "latest", "v1.10.0^{}")}
    for wanted, tag in {
        "1.x": "v1.10.0",
        ">=1.0 <1.10": "v1.2.0",
        "*": "v2.0.0",
        ">=2.0.0-alpha <2.0.0": "v2.0.0-rc.1",
        "~1.2 || 3.x": "v1.2.0",
    }.items():
        assert choose(heads, Revision(semver=wanted)).id == tag
    for wanted in ("3.x", "nonsense", ""):
        with pytest.raises(NoSuchRevision):
            choose(heads, Revision(semver=wanted or " "))


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("1.2.3", "^1.2", True), ("2.0.0", "^1.2", False), ("0.3.1", "^0.3.0", True), ("0.4.0", "^0.3.0", False),
        ("1.4.9", "~1.4", True), ("1.5.0", "~1.4", False), ("1.2.3", ">1.2.3", False), ("1.2.4", ">1.2.3", True),
        ("1.2.3", "<=1.2.3", True), ("1.3.0", ">1.2", True), ("1.2.9", ">1.2", False), ("1.2.0-rc.1", "1.x", False),
        ("1.2.0-rc.2", ">=1.2.0-rc.1", True), ("1.2.0-rc.10", ">1.2.0-rc.9", True), ("1.2.3", "=1.2.3", True), ("1.2.3", ">= 1.2, < 2", True),
    ],
)  # fmt: skip
def test_ranges(version: str, wanted: str, fits: bool) -> None:
    parsed = parse_version(version)
    assert parsed is not None
    assert in_range(parsed, wanted) is fits


async def test_a_source_follows_a_tag_range_and_a_pinned_commit(bench: Bench) -> None:
    first = bench.repo.commit({"a.yaml": config_map("a")})
    bench.repo.git("tag", "-a", "v1.0.0", "-m", "one")
    bench.repo.commit({"a.yaml": config_map("a", "2")})
    bench.repo.git("tag", "v2.0.0")
    await bench.declare_source(revision={"semver": "1.x"})
    await bench.declare()
    await bench.at(first)
    source = await bench.sources.get("repo")
    assert source["status"]["found"] == "tag v1.0.0"
    bench.repo.git("tag", "-d", "v1.0.0")
    await bench.declare_source(revision={"commit": first})
    await bench.says("Applied")
    assert await bench.values() == {"a": "1"}


# Where it is


async def test_a_repository_over_http_with_a_password(bench: Bench) -> None:
    commit = bench.repo.commit({"a.yaml": config_map("a")})
    with over_http(bench.repo.path.parent, "ada", "s3cret") as url:
        await bench.declare_source(url=f"{url}/repo/.git")
        source = await source_says(bench, "FetchFailed")
        assert "name a Secret in `secret`" in said(source)["message"]
        await secret(bench, "wrong", username="ada", password="guess")
        await bench.declare_source(url=f"{url}/repo/.git", secret="wrong")
        await bench.eventually(partial(_mentions, bench, "refuses the credentials"))
        await secret(bench, "right", username="ada", password="s3cret")
        await bench.declare_source(url=f"{url}/repo/.git", secret="right")
        await bench.declare()
        await bench.at(commit)
    assert "s3cret" not in str(await bench.sources.get("repo"))


async def _mentions(bench: Bench, words: str) -> bool:
    return words in said(await bench.sources.get("repo")).get("message", "")


def test_credentials_go_to_the_host_they_are_for_and_to_no_other(repo: Repo, tmp_path: Path) -> None:
    commit = repo.commit({"a": "1"})
    mine = Credentials("ada", "s3cret")
    with over_http(repo.path.parent, "ada", "s3cret") as url, redirects() as (start, there):
        for elsewhere in (url.replace("127.0.0.1", "localhost"), url):  # another host; another port
            there[:] = [elsewhere]
            with pytest.raises(GitFailure, match="put the address that is meant into `url`"):
                Repository(tmp_path / "copies", f"{start}/repo/.git").heads(mine, Allowance())
        there[:] = [f"{start}/moved", url]  # within a host, and then beyond it
        with pytest.raises(GitFailure, match="put the address that is meant into `url`"):
            Repository(tmp_path / "copies", f"{start}/repo/.git").heads(mine, Allowance())
        assert Repository(tmp_path / "copies", f"{url}/repo/.git").heads(mine, Allowance())["HEAD"] == commit


def test_a_redirect_to_another_host_is_not_followed_even_without_credentials(repo: Repo, tmp_path: Path) -> None:
    repo.commit({"a": "1"})
    with over_http(repo.path.parent) as url, redirects() as (start, there):
        there[:] = [url.replace("127.0.0.1", "localhost")]  # it was not asked whether that may be read
        with pytest.raises(GitFailure, match=r"cannot redirect from '127\.0\.0\.1' to 'localhost'"):
            Repository(tmp_path / "copies", f"{start}/repo/.git").heads(NOBODY, Allowance())


def test_a_shallow_fetch_brings_one_commit(repo: Repo, tmp_path: Path) -> None:
    first = repo.commit({"a": "1"})
    last = repo.commit({"a": "2"})
    with over_http(repo.path.parent) as url:
        copy = Repository(tmp_path / "copies", f"{url}/repo/.git")
        copy.fetch("refs/heads/main", NOBODY, Allowance(), depth=1)
    assert copy.has(last)
    assert not copy.has(first)


@pytest.mark.skipif(SSHD is None, reason="no sshd")
def test_a_repository_over_ssh_with_a_known_host_and_no_other(repo: Repo, tmp_path: Path) -> None:
    commit = repo.commit({"a": "1"})
    with over_ssh(tmp_path / "ssh") as (where, identity, known_hosts):
        copy = Repository(tmp_path / "copies", f"ssh://{where}{repo.path}")
        copy.fetch("refs/heads/main", Credentials(identity=identity, known_hosts=known_hosts), Allowance())
        assert copy.has(commit)
        with pytest.raises(GitFailure, match="known_hosts"):
            copy.heads(Credentials(identity=identity), Allowance())


def test_what_is_too_large_or_too_slow_is_given_up(repo: Repo, tmp_path: Path) -> None:
    repo.commit({"a": os.urandom(200_000).hex()})
    with over_http(repo.path.parent) as url:
        copy = Repository(tmp_path / "copies", f"{url}/repo/.git")
        with pytest.raises(GitFailure, match=r"limits\.mebibytes"):
            copy.fetch("refs/heads/main", NOBODY, Allowance(size=1000))
        with pytest.raises(GitFailure, match=r"limits\.time"):
            copy.fetch("refs/heads/main", NOBODY, Allowance(seconds=-1))


async def test_only_what_is_allowed_is_read(tmp_path: Path) -> None:
    bounds = Bounds(("github.com", str(tmp_path / "repos")))
    await bounds.check("https://github.com/acme/shop")
    await bounds.check("git@github.com:acme/shop")
    await bounds.check(str(tmp_path / "repos" / "shop"))
    (tmp_path / "repos").mkdir()
    (tmp_path / "repos" / "out").symlink_to("/etc")
    for url in (
        "https://gitlab.com/acme/shop",
        "git@gitlab.com:acme/shop",
        "/etc",
        f"{tmp_path}/repos/out",
        f"file://{tmp_path}/repos/../x",
    ):
        with pytest.raises(Forbidden):
            await bounds.check(url)
    with pytest.raises(Forbidden):
        await Bounds().check("http://169.254.169.254/latest")


async def test_sources_of_one_address_are_asked_as_one(bench: Bench) -> None:
    bench.repo.commit({"a.yaml": config_map("a")})
    for i in range(20):
        await bench.declare_source(f"repo-{i}")

    async def all_there() -> bool:
        return all((one.get("status") or {}).get("commit") for one in await bench.sources.list())

    await bench.eventually(all_there)
    assert bench.sync.running is not None
    assert bench.sync.running.sources.fetches <= 5


async def test_a_secret_is_not_sent_in_the_clear(bench: Bench) -> None:
    await secret(bench, "key", token="x")
    await bench.declare_source(url="http://git.example.com/shop", secret="key")
    assert "must be https" in said(await source_says(bench, "FetchFailed"))["message"]


@pytest.mark.parametrize(
    ("words", "said_of_it"),
    [
        (["git", "webhooks:0.0.0.0:9292"], ""),
        (["git:github.com", "git:/srv"], ""),
        (["webhooks"], "say where"),
        (["webhooks:9292"], "say where"),
    ],
)
def test_what_may_be_read_is_said_when_the_loop_is_started(words: list[str], said_of_it: str) -> None:
    if said_of_it:
        with pytest.raises(click.UsageError, match=said_of_it):
            Allowed.parse(words)
    else:
        assert str(Allowed.parse(words))


# Who signed it


def ssh_key(place: Path, name: str) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)], check=True)
    return place / name


async def test_only_commits_signed_by_an_allowed_ssh_key_count(bench: Bench, tmp_path: Path) -> None:
    mine, other = ssh_key(tmp_path, "mine"), ssh_key(tmp_path, "other")
    bench.repo.git("config", "gpg.format", "ssh")
    bench.repo.git("config", "user.signingkey", str(mine))
    bench.repo.write({"a.yaml": config_map("a")})
    bench.repo.git("add", "-A")
    bench.repo.git("commit", "-q", "-S", "-m", "signed")
    good = bench.repo.git("rev-parse", "HEAD")
    await secret(bench, "keys", **{"ada.pub": (tmp_path / "mine.pub").read_text()})
    await bench.declare_source(verify={"secret": "keys"})
    await bench.declare()
    await bench.at(good)
    assert (await bench.sources.get("repo"))["status"]["signedBy"] == "ada.pub"
    for options, key, words in (((), mine, "it is not signed"), (("-S",), other, "none of ada.pub")):
        bench.repo.git("config", "user.signingkey", str(key))
        bench.repo.git("commit", "-q", "--allow-empty", "-m", "not", *options)
        bench.poke()
        await bench.eventually(partial(_mentions, bench, words), words)
        source = await source_says(bench, "NotVerified")
        assert "still counts, and nothing is changed" in said(source)["message"]
        assert source["status"]["commit"] == good
    await bench.says("SourceUnknown")
    assert await bench.values() == {"a": "1"}


@pytest.mark.skipif(not shutil.which("gpg"), reason="no gpg")
async def test_only_commits_signed_by_an_allowed_gpg_key_count(bench: Bench, tmp_path: Path) -> None:
    home = tmp_path / "g"
    home.mkdir(mode=0o700)
    gpg = ["gpg", "--homedir", str(home), "--batch", "--quiet"]
    for who in ("ada", "eve"):
        subprocess.run(
            [*gpg, "--passphrase", "", "--quick-gen-key", f"{who}@example.com", "ed25519", "sign", "never"],
            check=True,
            capture_output=True,
        )
    public = subprocess.run(
        [*gpg, "--armor", "--export", "ada@example.com"], check=True, capture_output=True, text=True
    ).stdout
    commits = {}
    for who in ("ada", "eve"):
        bench.repo.write({"a.yaml": config_map("a", who)})
        bench.repo.git("add", "-A")
        bench.repo.git("commit", "-q", f"-S{who}@example.com", "-m", who, GNUPGHOME=str(home))
        commits[who] = bench.repo.git("rev-parse", "HEAD")
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False, capture_output=True)
    await secret(bench, "keys", **{"ada.asc": public})
    await bench.declare_source(verify={"secret": "keys"}, revision={"commit": commits["ada"]})
    await bench.declare()
    await bench.at(commits["ada"])
    await bench.declare_source(verify={"secret": "keys"})
    source = await source_says(bench, "NotVerified")
    assert "none of ada.asc" in said(source)["message"]
    assert await bench.values() == {"a": "ada"}


async def test_a_push_that_is_told_while_the_remote_is_asked_is_not_missed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.repo.commit({"a.yaml": config_map("a")})
    await bench.begin()
    asked, go, heads = threading.Event(), threading.Event(), Repository.heads

    def slow(self: Repository, *args: Any) -> dict[str, str]:
        found = heads(self, *args)
        asked.set()
        go.wait(10)
        return found

    monkeypatch.setattr(Repository, "heads", slow)
    bench.poke()
    await asyncio.to_thread(asked.wait, 10)
    newest = await bench.push({"a.yaml": config_map("a", "2")})
    go.set()
    await bench.at(newest)
