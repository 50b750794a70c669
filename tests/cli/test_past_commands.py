"""History, return, checkpoints, inventory and evidence: the real command against a real `homeostat up` that keeps real files."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from homeostat.api.auth import usertokens
from homeostat.api.history import DAY, NOTHING, Keep
from homeostat.cli import main
from homeostat.cli.keeping import retention
from homeostat.cli.restoring import LEFT_ALONE

from .conftest import COMMAND, Up

Start = Callable[..., Up]


class Site:
    """Files of a site that a server keeps, in a namespace and a directory of its own, and the command line."""

    def __init__(self, kubeconfig: Path, directory: Path, files: Path, namespace: str = "default") -> None:
        self.kubeconfig = kubeconfig
        self.directory = directory
        self.files = files
        self.namespace = namespace
        self.up: Up

    def _call(self, *arguments: object) -> Result:
        call = [*map(str, arguments), "--kubeconfig", str(self.kubeconfig)]
        if arguments[0] not in ("checkpoint", "drift", "runbook"):
            call += ["-n", self.namespace]
        result: Result = CliRunner().invoke(main, call, catch_exceptions=False)
        return result

    def run(self, *arguments: object, code: int = 0) -> str:
        result = self._call(*arguments)
        assert result.exit_code == code, result.output
        return result.output

    def data(self, *arguments: object, code: int = 0) -> Any:
        result = self._call(*arguments, "-o", "json")
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    def declare(self, **contents: str) -> str:
        """Applies these files; gives the name of the change set."""
        path = self.directory / "site.yaml"
        path.write_text("---\n".join(self.manifest(name, content) for name, content in contents.items()))
        said = self.run("apply", "--yes", "--force-conflicts", "-f", path)
        found = re.search(r"change set (\S+)\.", said)
        assert found, said
        return found[1]

    def manifest(self, name: str, content: str) -> str:
        return (
            f"apiVersion: files.homeostat.dev/v1\nkind: File\nmetadata: {{name: {name}, labels: {{control: banners}}}}\n"
            f"spec: {{path: {self.files / name}, content: {json.dumps(content)}}}\n"
        )

    def holds(self, name: str) -> str:
        try:
            return (self.files / name).read_text()
        except FileNotFoundError:
            return ""

    def until(self, holds: Callable[[], Any]) -> Any:
        end = time.monotonic() + 20
        while not (found := holds()):
            assert time.monotonic() < end, self.run("drift")
            time.sleep(0.03)
        return found

    def ready(self, *names: str) -> None:
        for name in names:
            self.run("wait", "file", name, "--for", "condition=Ready", "--timeout", "20s")

    def revision(self) -> int:
        return int(self.data("get", "files")["metadata"]["resourceVersion"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of a server whose loop acts on files below `files` beside it."""
    data = tmp_path_factory.mktemp("past") / "data"
    files = data.parent / "files"
    files.mkdir()
    log = data.parent / "log"
    call = [*COMMAND, "up", "--data", str(data), "--listen", "127.0.0.1:0", "--allow", f"file:{files}", "--enforce"]
    with log.open("w") as out, subprocess.Popen(call, stdout=out, stderr=subprocess.STDOUT) as process:
        end = time.monotonic() + 30
        while "Ctrl-C" not in log.read_text():
            assert process.poll() is None and time.monotonic() < end, log.read_text()  # noqa: PT018
            time.sleep(0.02)
        try:
            yield data
        finally:
            process.terminate()
            process.wait(20)
    assert "Traceback" not in log.read_text(), log.read_text()


_numbers = itertools.count(1)


@pytest.fixture
def site(server: Path, tmp_path: Path) -> Site:
    name = f"site-{next(_numbers)}"
    files = server.parent / "files" / name
    files.mkdir()
    found = Site(server / "admin.kubeconfig", tmp_path, files, name)
    found.until(lambda: "files" in found.run("get", "customresourcedefinitions"))
    room = tmp_path / "room.yaml"
    room.write_text(f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n")
    found.run("apply", "--yes", "-f", room)
    return found


def alone(start: Start, directory: Path, *options: str) -> Site:
    """One with a server of its own."""
    files = directory / "files"
    files.mkdir()
    up = start("--allow", f"file:{files}", "--enforce", *options)
    found = Site(up.kubeconfig, directory, files)
    found.up = up
    found.until(lambda: "files" in found.run("get", "customresourcedefinitions"))
    return found


def test_the_past_is_read_compared_and_told(site: Site) -> None:
    first = site.declare(motd="one")
    site.ready("motd")
    before = site.revision()
    second = site.declare(motd="two", issue="hello")
    site.until(lambda: site.holds("motd") == "two")
    site.ready("motd", "issue")

    assert site.data("get", "file", "motd", "--at", before)["spec"]["content"] == "one"
    assert site.data("get", "file", "motd")["spec"]["content"] == "two"
    then = site.run("get", "file", "issue", "--at", before, code=1)
    assert "at revision" in then
    assert "Did you mean" not in then  # itself
    assert [i["metadata"]["name"] for i in site.data("get", "files", "--at", before)["items"]] == ["motd"]
    assert "has not come yet" in site.run("get", "file", "motd", "--at", 10**9, code=1)
    assert "neither a revision nor a time" in site.run("get", "file", "motd", "--at", "yesterday", code=1)

    of_kind = site.data("diff", "files", "--rev", f"{before}..", code=1)
    assert [(step["op"], step["name"]) for step in of_kind] == [("create", "issue"), ("update", "motd")]
    of_one = site.run("diff", "file", "motd", "--rev", f"{before}..", code=1)
    assert of_one == f'~ File {site.namespace}/motd\n    ~ spec.content: "one" → "two"\n'
    everything = site.run("diff", "--rev", f"{before}..", code=1)
    assert f"File {site.namespace}/issue" in everything
    assert "Event" not in everything
    assert site.run("diff", "file", "motd", "--rev", f"{before}..{before}") == ""
    assert "A..B" in site.run("diff", "file", "motd", "--rev", str(before), code=2)

    told = site.data("history", "file", "motd")
    writes = [(e["what"], e["changeSet"]) for e in told if e["source"] == "write"]
    assert writes == [("created", first), ("declared spec.content", second)]
    assert all(e["who"] == "admin (homeostat-cli)" for e in told if e["source"] == "write"), told
    loop = " | ".join(e["what"] for e in told if e["source"] == "loop")
    assert re.search(r"found to differ .*began to create.*Ready True.*found to differ \(intent.*began to update.*Ready True", loop)
    of_set = site.data("history", "--change-set", second)
    assert {f"declared File {site.namespace}/issue", f"changed File {site.namespace}/motd"} <= {e["what"] for e in of_set}
    assert "is not known" in site.run("history", "file", "nothing", code=1)


def test_the_past_of_a_secret_is_masked_like_its_present(site: Site) -> None:
    file = site.directory / "secret.yaml"
    for word in ("first-word", "second-word"):
        file.write_text(f"apiVersion: v1\nkind: Secret\nmetadata: {{name: key}}\nstringData: {{word: {word}}}\n")
        before = site.revision()
        site.run("apply", "--yes", "-f", file)
    raw = [base64.b64encode(word).decode() for word in (b"first-word", b"second-word")]
    shown = [
        site.run("diff", "secret", "key", "--rev", f"{before}..", code=1),
        site.run("rollback", "secret", "key", "--yes"),
        site.run("history", "secret", "key", "-o", "json"),
    ]
    assert "(sensitive)" in shown[0]
    assert not [text for text in shown for word in ("first-word", "second-word", *raw) if word in text]
    assert site.data("get", "secret", "key")["data"]["word"] == raw[0]


def test_what_the_loop_repaired_is_in_the_history_with_its_cause(site: Site) -> None:
    site.declare(motd="one")
    site.ready("motd")
    (site.files / "motd").write_text("by hand")
    site.until(lambda: site.holds("motd") == "one")
    site.until(lambda: [e for e in site.data("history", "file", "motd") if "repaired: reality had changed" in e["what"]])


def test_an_object_goes_back_and_holds(site: Site) -> None:
    site.declare(motd="one")
    site.ready("motd")
    then = site.revision()
    site.declare(motd="two")
    site.declare(motd="three")
    site.until(lambda: site.holds("motd") == "three")

    shown = site.run("rollback", "file", "motd", "--dry-run")
    assert '~ spec.content: "three" → "two"' in shown
    assert site.data("get", "file", "motd")["spec"]["content"] == "three"
    said = site.run("rollback", "file", "motd", "--to", then, "--yes")
    assert "Guards: let it through" in said
    assert re.search(r"as change set rollback-\S+", said)
    site.until(lambda: site.holds("motd") == "one")
    refused = site.run("apply", "--yes", "-f", site.directory / "site.yaml", code=1)
    assert 'conflict with "homeostat-rollback"' in refused

    site.run("rollback", "file", "motd", "--yes")
    site.until(lambda: site.holds("motd") == "three")
    assert "was not there at revision 2" in site.run("rollback", "file", "motd", "--to", 2, code=1)
    assert "nobody to ask" in site.run("rollback", "file", "motd", code=2)


def test_a_change_set_goes_back_as_a_whole(site: Site) -> None:
    site.declare(motd="one", issue="hello")
    site.ready("motd", "issue")
    bad = site.declare(motd="bad", issue="bad", extra="bad")
    site.until(lambda: site.holds("extra") == "bad")
    site.ready("motd", "issue", "extra")
    shown = site.data("rollback", "changeset", bad, "--dry-run")
    assert {(a["op"], a["name"]) for a in shown["actions"]} == {("update", "motd"), ("update", "issue"), ("delete", "extra")}
    site.run("rollback", "changeset", bad, "--yes")
    site.until(lambda: (site.holds("motd"), site.holds("issue"), site.holds("extra")) == ("one", "hello", ""))

    later = site.declare(motd="fixed")
    assert "declared otherwise since" in site.run("rollback", "changeset", bad, "--yes", code=1)
    site.run("rollback", "changeset", later, "--yes")
    site.until(lambda: site.holds("motd") == "one")
    assert "nothing is known of a change set" in site.run("rollback", "changeset", "never-was", code=1)


def test_a_push_that_the_guards_halt_is_taken_back_before_it_did_anything(start: Start, tmp_path: Path) -> None:
    site = alone(start, tmp_path)
    names = [f"f{n}" for n in range(12)]
    site.declare(**dict.fromkeys(names, "good"))
    site.until(lambda: all(site.holds(name) == "good" for name in names))
    site.ready(*names)
    bad = site.declare(**dict.fromkeys(names, "bad"))
    site.until(lambda: "mass-drift" in site.run("runbook"))
    plan = site.data("rollback", "changeset", bad, "--yes")
    assert (plan["change"], plan["failed"]) == (12, [])
    site.until(lambda: "all is as declared" in site.run("drift"))
    assert [site.holds(name) for name in names] == ["good"] * 12


def test_what_a_change_set_pruned_comes_back_with_it(site: Site) -> None:
    """Also of kinds that the loop does not keep."""
    file = site.directory / "maps.yaml"
    map_of = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, labels: {app: site}}\ndata: {number: '%s'}\n"
    file.write_text(map_of % ("a", 1) + "---\n" + map_of % ("b", 1))
    site.run("apply", "--yes", "-f", file)
    file.write_text(map_of % ("a", 2))
    said = site.run("apply", "--yes", "-f", file, "--prune", "app=site")
    assert "1 to change, 1 to destroy" in said
    found = re.search(r"change set (\S+)\.", said)
    assert found
    site.run("rollback", "changeset", found[1], "--yes")
    maps = {m["metadata"]["name"]: m["data"]["number"] for m in site.data("get", "configmaps", "-l", "app=site")["items"]}
    assert maps == {"a": "1", "b": "1"}


def test_what_was_deleted_comes_back(site: Site) -> None:
    site.declare(motd="one")
    site.ready("motd")
    empty = site.directory / "empty.yaml"
    empty.write_text(site.manifest("other", "x"))
    site.run("apply", "--yes", "-f", empty, "--prune", "control=banners")
    site.until(lambda: "not found" in site.run("get", "file", "motd", code=1) if site.holds("motd") == "" else False)
    assert "deleted" in [e["what"] for e in site.data("history", "file", "motd")]
    assert f"+ File {site.namespace}/motd" in site.run("rollback", "file", "motd", "--yes")
    site.until(lambda: site.holds("motd") == "one")


def rows(database: Path) -> list[tuple[Any, ...]]:
    """Every living key with its value and revisions, as SQLite itself reads them."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        query = "SELECT c.key, l.value, l.id >> 20, l.created FROM current c JOIN log l ON l.id = c.id ORDER BY c.key"
        return connection.execute(query).fetchall()


def test_a_checkpoint_comes_back_in_a_fresh_directory_byte_for_byte(start: Start, tmp_path: Path) -> None:
    site = alone(start, tmp_path)
    site.declare(motd="one", issue="hello")
    site.ready("motd", "issue")
    file = tmp_path / "all.checkpoint"
    made = site.data("checkpoint", "create", file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert "exists already" in site.run("checkpoint", "create", file, code=1)
    site.up.stop()

    whole = tmp_path / "offline.checkpoint"
    site.run("checkpoint", "create", "--data", site.up.data, whole)
    original = {row[0]: row for row in rows(site.up.data / "store.db")}
    site.run("checkpoint", "restore", whole, "--data", tmp_path / "fresh")
    assert {row[0]: row for row in rows(tmp_path / "fresh" / "store.db")} == original
    assert "has a store already" in site.run("checkpoint", "restore", whole, "--data", tmp_path / "fresh", code=1)

    site.run("checkpoint", "restore", file, "--data", tmp_path / "fresher")
    again = Site(start("--no-loop", data=tmp_path / "fresher").kubeconfig, tmp_path, site.files)
    found = {f["metadata"]["name"]: f for f in again.data("get", "files")["items"]}
    assert {name: f["metadata"]["uid"] for name, f in found.items()}.keys() == {"motd", "issue"}
    stored = json.loads(original["files.files.homeostat.dev/default/motd"][1])
    assert found["motd"]["metadata"]["uid"] == stored["metadata"]["uid"]
    assert int(found["motd"]["metadata"]["resourceVersion"]) <= made["revision"]
    assert "is too old" in again.run("get", "files", "--at", 5, code=1)


def test_a_damaged_checkpoint_is_refused_with_its_place(site: Site, tmp_path: Path) -> None:
    site.declare(motd="one")
    file = tmp_path / "all.checkpoint"
    site.run("checkpoint", "create", file)
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    for command in (["verify", file], ["restore", file, "--data", tmp_path / "fresh"], ["restore", file, "--yes"]):
        result = CliRunner().invoke(main, ["checkpoint", *map(str, command)])
        assert result.exit_code == 1
        assert re.search(r"all\.checkpoint is damaged at byte \d+: the checksum of this block does not fit", result.output)
    assert not (tmp_path / "fresh").exists()


def test_a_server_that_has_written_no_checkpoint_is_no_error(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "admin.kubeconfig"
    result = CliRunner().invoke(main, ["checkpoint", "list", "--kubeconfig", str(kubeconfig)])
    assert result.exit_code == 0, result.output
    assert f"no checkpoint in {tmp_path / 'checkpoints'}; `homeostat up --checkpoint-every 1h` writes them there" in result.output
    result = CliRunner().invoke(main, ["checkpoint", "list", str(tmp_path / "none"), "--kubeconfig", str(kubeconfig)])
    assert result.exit_code == 1
    assert "none: No such directory; say which" in result.output


def test_a_checkpoint_goes_back_in_place_under_the_guards(site: Site, tmp_path: Path) -> None:
    site.declare(motd="one", issue="hello")
    site.ready("motd", "issue")
    file = tmp_path / "all.checkpoint"
    site.run("checkpoint", "create", file)
    site.declare(motd="two", extra="new")
    site.run("freeze", "files/nobody", "--reason", "look at it", "--for", "1h")
    site.until(lambda: site.holds("extra") == "new")
    site.ready("motd", "extra")

    kept = site.data("checkpoint", "restore", file, "--dry-run", "--keep-new")
    assert [(a["op"], a["kind"], a["name"]) for a in kept["actions"]] == [("update", "File", "motd")]
    plan = site.data("checkpoint", "restore", file, "--dry-run")
    assert {(a["op"], a["name"]) for a in plan["actions"]} == {("update", "motd"), ("delete", "extra")}
    assert [g["fleet"] for g in plan["guards"]] == ["default/files.files.homeostat.dev"]
    site.run("checkpoint", "restore", file, "--yes")
    site.until(lambda: (site.holds("motd"), site.holds("extra")) == ("one", ""))
    policy = site.data("get", "guardpolicy", "files.files.homeostat.dev")
    assert [freeze["reason"] for freeze in policy["spec"]["freezes"]] == ["look at it"], "a restore lifts no freeze"
    site.run("unfreeze", "files/nobody")


def test_what_was_said_or_proven_once_is_never_taken_back() -> None:
    assert {"approvals.homeostat.dev", usertokens.QUALIFIED, "leases.coordination.k8s.io", "events"} <= LEFT_ALONE


def test_checkpoints_come_by_the_clock_and_only_so_many_stay(start: Start, tmp_path: Path) -> None:
    site = alone(start, tmp_path, "--checkpoint-every", "1s", "--checkpoint-keep", "2")
    up = site.up
    folder = up.data / "checkpoints"
    mine = folder / "mine.checkpoint"
    site.until(folder.is_dir)
    site.run("checkpoint", "create", mine)
    seen: set[str] = set()
    number = 0
    end = time.monotonic() + 30
    while len(seen) < 4 and time.monotonic() < end:
        number += 1
        site.declare(motd=str(number))
        seen |= {path.name for path in folder.glob("auto-*.checkpoint")}
        time.sleep(0.2)
    assert len(seen) >= 4
    up.process.send_signal(signal.SIGKILL)
    up.process.wait()
    left = sorted(path.name for path in folder.glob("auto-*.checkpoint"))
    assert len(left) in (2, 3), "one more for the moment between writing and deleting"
    assert mine.exists(), "what people made stays"
    runner = CliRunner().invoke(main, ["checkpoint", "verify", *(str(folder / name) for name in left), str(mine)])
    assert runner.exit_code == 0, runner.output
    listed = CliRunner().invoke(main, ["checkpoint", "list", str(folder), "-o", "json"])
    assert len(json.loads(listed.output)) == len(left) + 1


def test_a_server_killed_in_a_checkpoint_leaves_none_that_is_half(site: Site, tmp_path: Path) -> None:
    site.declare(**{f"f{n}": "x" * 20_000 for n in range(40)})
    file = tmp_path / "all.checkpoint"
    child = subprocess.Popen([*COMMAND, "checkpoint", "create", str(file), "--kubeconfig", str(site.kubeconfig)])
    site.until(lambda: file.with_name(f"{file.name}.part").exists() or file.exists() or child.poll() is not None)
    child.kill()
    child.wait()
    if file.exists():
        assert CliRunner().invoke(main, ["checkpoint", "verify", str(file)]).exit_code == 0
    else:
        site.run("checkpoint", "create", file)
    assert len(site.data("get", "files")["items"]) == 40


def test_inventory_tells_what_is_managed_and_what_is_not(site: Site) -> None:
    site.declare(motd="one", issue="hello")
    site.ready("motd", "issue")
    found = site.data("inventory")
    assert [(i["provider"], i["name"], i["source"], i["health"]) for i in found] == [
        ("File", "issue", "homeostat-cli", "Healthy"),
        ("File", "motd", "homeostat-cli", "Healthy"),
    ]
    assert site.data("inventory", "--by", "health") == [{"health": "Healthy", "count": 2}]
    (site.files / "stray").write_text("who made this?")
    (site.files / "old").mkdir()
    (site.files / "old" / "a").write_text("a")
    os.symlink("/etc/passwd", site.files / "link")
    strange = site.data("inventory", "--unmanaged", "--allow", f"file:{site.files}")
    assert [(Path(i["name"]).name, i["what"]) for i in strange] == [
        ("link", "a link"),
        ("old", "a directory of 1 files"),
        ("stray", "a file"),
    ]
    assert "not looked for, as no --allow or --provider here says how: File" in site.run("inventory", "--unmanaged")
    assert "add --unmanaged" in site.run("inventory", "--allow", "process", code=2)


def test_evidence_is_given_with_every_exception_and_escaped(site: Site, tmp_path: Path) -> None:
    mark = site.declare(motd="<script>alert(1)</script> | **bold**", issue="hello")
    site.ready("motd", "issue")
    told = site.data("report", "-l", "control=banners", "--strict")
    assert (told["met"], told["notMet"], told["unknown"], told["exceptions"]) == (2, 0, 0, 0)
    motd = next(item for item in told["items"] if item["name"] == "motd")
    assert motd["declared"]["changeSet"] == mark
    assert [change["change"] for change in motd["changes"]] == ["created"]

    site.run("freeze", "files/motd", "--reason", "the <b>audit</b>", "--for", "1h")
    (site.files / "motd").write_text("by hand")
    site.until(lambda: site.data("report", "-l", "control=banners")["notMet"] == 1)
    page = tmp_path / "report.html"
    site.run("report", "-l", "control=banners", "-o", "html", "-f", page, "--strict", code=1)
    text = page.read_text()
    assert "<script>" not in text
    assert "the &lt;b&gt;audit&lt;/b&gt;" in text
    assert not re.search(r"""(src|href)=["'](?!#)""", text), "it loads nothing"
    markdown = site.run("report", "-l", "control=banners")
    assert "frozen until" in markdown
    assert "**bold**" not in re.sub(r"(?m)^    .*$", "", markdown)
    site.run("unfreeze", "files/motd")
    assert "there is no evidence" in site.run("report", "-l", "control=none", code=1)
    assert "selects nothing" in site.run("report", "-l", "", code=2)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("soon", "'soon' is no duration"),
        ("30d,many", "'many' is no number of changes"),
        ("30d,0", "'0' is no number of changes"),
        ("=30d", "no kind stands before the ="),
    ],
)
def test_what_is_to_be_kept_is_understood_or_refused_before_anything_starts(word: str, said: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["up", "--data", str(tmp_path / "data"), "--keep-history", word])
    assert result.exit_code == 2
    assert said in result.output
    assert not (tmp_path / "data").exists()


def test_what_is_to_be_kept_is_said_for_all_and_for_some() -> None:
    with click.Context(main):
        found = retention(["90d", "secrets=1d", "pods=0", "files.files.homeostat.dev=1y,500"])
    assert found.of("configmaps") == Keep(90 * DAY, 100)
    assert found.of("secrets") == Keep(DAY, 100)
    assert found.of("pods") == NOTHING
    assert found.of("files.files.homeostat.dev") == Keep(365 * DAY, 500)
    assert found.of("events") == NOTHING
