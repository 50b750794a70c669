"""Files that SOPS encrypted for an age key. Those in `sealed/` were written by sops 3.11, the key beside them is for nothing else."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path

import pytest
from tests.loop.waiting import said
from tests.sources.conftest import Bench
from tests.sources.repo import config_map

from homeostat.sources.files import RenderError
from homeostat.sources.manifests import parse
from homeostat.sources.sops import Keys, NoKeys, keys_of

PLACE = Path(__file__).parent / "sealed"
IDENTITY = (PLACE / "age.txt").read_bytes()
PASSWORD = "open sesame ${NOT_A_VARIABLE}"


def text(name: str) -> str:
    return (PLACE / name).read_text()


@pytest.fixture(scope="module")
def keys() -> Keys:
    return keys_of({"shop.agekey": b"# made for tests\n" + IDENTITY, "README": b"nothing"}, "default/sops")


@pytest.mark.parametrize("name", ["secret.yaml", "mac-only.yaml"])
def test_what_sops_encrypted_is_opened(keys: Keys, name: str) -> None:
    (one,) = parse(text(name), name, keys)
    assert one.obj["stringData"] == {
        "user": "shop", "password": PASSWORD, "empty": "", "port": "5432", "note": "two\nlines — ü\n",
    }  # fmt: skip
    assert one.obj["data"] == {"raw": "AAEC"}
    assert "sops" not in one.obj
    assert one.sealed


def test_json_and_several_documents_are_opened(keys: Keys) -> None:
    (one,) = parse(text("secret.json"), "secret.json", keys)
    assert one.obj["stringData"] == {"user": "shop", "n": "7"}
    first, second = parse(text("two.yaml"), "two.yaml", keys)
    assert (first.obj["stringData"]["user"], second.obj["stringData"]["user"]) == ("shop", "other")
    assert second.line == 34


def changed(name: str, old: str, new: str) -> str:
    assert old in text(name)
    return text(name).replace(old, new, 1)


def swapped() -> str:
    lines = text("secret.yaml").splitlines(keepends=True)
    user, password = (next(i for i, line in enumerate(lines) if line.startswith(f"    {k}:")) for k in ("user", "password"))
    a, b = lines[user].partition(": ")[2], lines[password].partition(": ")[2]
    lines[user], lines[password] = f"    user: {b}", f"    password: {a}"
    return "".join(lines)


def without(name: str, key: str) -> str:
    return "".join(line for line in text(name).splitlines(keepends=True) if not line.startswith(f"    {key}:"))


@pytest.mark.parametrize(
    ("content", "there", "field", "words"),
    [
        (changed("secret.yaml", "name: database", "name: another"), "mac: ", "sops.mac", "MAC does not check"),
        (changed("secret.yaml", "immutable: false", "immutable: true"), "mac: ", "sops.mac", "MAC does not check"),
        (changed("secret.yaml", 'empty: ""', "empty: full"), "mac: ", "sops.mac", "MAC does not check"),
        (without("secret.yaml", "user"), "mac: ", "sops.mac", "MAC does not check"),
        (without("mac-only.yaml", "user"), "mac: ", "sops.mac", "MAC does not check"),
        (changed("secret.yaml", "2026-11-15T", "2026-11-16T"), "mac: ", "sops.mac", "cannot be decrypted"),
        (changed("secret.yaml", "data:8+nOWA==", "data:8+nOWQ=="), "user: ", "stringData.user", "cannot be decrypted"),
        (changed("secret.yaml", ",type:str]", ",type:what]"), "user: ", "stringData.user", "not encrypted in a way"),
        (swapped(), "user: ", "stringData.user", "stood elsewhere"),
        (text("secret.yaml") + "---\n" + config_map("a"), "apiVersion: v1", "", "not encrypted, and others in its file are"),
        (text("config-map.yaml"), "value: ", "data.value", "only `data` and `stringData` of a Secret"),
        (text("everything.yaml"), "apiVersion: ", "apiVersion", "--encrypted-regex"),
        (changed("secret.yaml", "    age:", "    pgp:"), "sops:", "sops.age", "not encrypted for any age recipient"),
        (changed("secret.yaml", "sops:", "sops:\n    shamir_threshold: 2"), "sops:", "sops.key_groups", "split into parts"),
    ],
)  # fmt: skip
def test_what_does_not_check_is_refused_with_its_place(keys: Keys, content: str, there: str, field: str, words: str) -> None:
    with pytest.raises(RenderError, match=words) as caught:
        parse(content, "key.yaml", keys)
    assert (caught.value.file, caught.value.field) == ("key.yaml", field)
    assert content.splitlines()[caught.value.line - 1].strip().startswith(there)
    assert "sesame" not in str(caught.value)


def test_without_the_right_key_nothing_is_opened() -> None:
    with pytest.raises(RenderError, match="`decryption` names the Secret"):
        parse(text("secret.yaml"), "key.yaml")
    import pyrage

    wrong = keys_of({"a.agekey": str(pyrage.x25519.Identity.generate()).encode()}, "default/sops")
    with pytest.raises(RenderError, match=r"no identity in Secret default/sops is one of its recipients \(age1qdjmx"):
        parse(text("secret.yaml"), "key.yaml", wrong)


def test_keys_are_looked_for_by_their_ending_and_never_shown(keys: Keys) -> None:
    with pytest.raises(NoKeys, match=r"ends in \.agekey"):
        keys_of({"age.txt": IDENTITY}, "default/sops")
    with pytest.raises(NoKeys, match=r"a\.agekey has an age identity that is none"):
        keys_of({"a.agekey": IDENTITY.strip()[:-1]}, "default/sops")
    assert "AGE-SECRET" not in repr(keys)


async def give_key(bench: Bench) -> None:
    await bench.client.kind("v1", "Secret", namespace="default").create(
        {"metadata": {"name": "sops"}, "data": {"shop.agekey": base64.b64encode(IDENTITY).decode()}}
    )


async def test_an_encrypted_secret_is_applied_and_shown_nowhere(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    bench.repo.commit({"key.yaml": text("secret.yaml"), "a.yaml": config_map("a", "${SIZE}")})
    await bench.declare_source()
    await bench.declare(decryption={"secret": "sops"}, variables={"SIZE": "7"})
    sync = await bench.says("NotYet")
    assert "Secret default/sops, which `decryption` names" in said(sync)["message"]
    await give_key(bench)
    await bench.says("Applied")
    secrets = bench.client.kind("v1", "Secret", namespace="default")
    data = (await secrets.get("database"))["data"]
    assert base64.b64decode(data["password"]).decode() == PASSWORD
    assert await bench.values() == {"a": "7"}

    changed = base64.b64encode(b"stones and bones").decode()
    await secrets.patch("database", {"data": {"password": changed}}, field_manager="kubectl-edit")

    async def repaired() -> bool:
        return bool((await secrets.get("database"))["data"] == data)

    await bench.eventually(repaired)
    await bench.whole_pass()
    shown = caplog.text
    for version, kind in (("v1", "Event"), ("homeostat.dev/v1alpha1", "GuardPolicy"), ("homeostat.dev/v1alpha1", "Sync")):
        shown += json.dumps(await bench.client.kind(version, kind).list())
    controller = bench.engine.controllers["children.syncs.homeostat.dev"]
    shown += repr([controller.declarations.get(key)["status"] for key in controller.declarations.all()])  # type: ignore[index]
    assert "password" in shown  # it is told that it was not as declared
    for word in ("sesame", data["password"], "stones and", changed):
        assert word not in shown


async def test_what_the_server_says_of_an_encrypted_secret_is_not_repeated(bench: Bench) -> None:
    await give_key(bench)
    bench.repo.commit({"key.yaml": text("bad-base64.yaml")})
    await bench.declare_source()
    await bench.declare(decryption={"secret": "sops"})
    sync = await bench.says("Refused")
    assert sync["status"]["refused"]["file"] == "key.yaml"
    assert "its words are not shown" in said(sync)["message"]
    assert "sesame" not in json.dumps(sync["status"])


async def test_a_template_is_not_opened(bench: Bench) -> None:
    await give_key(bench)
    bench.repo.commit({"key.yaml.j2": text("secret.yaml")})
    await bench.declare_source()
    await bench.declare(decryption={"secret": "sops"})
    assert "in no kustomization or template" in said(await bench.says("Refused"))["message"]


async def test_one_sync_s_key_opens_nothing_for_another(bench: Bench) -> None:
    await give_key(bench)
    bench.repo.commit({"key.yaml": text("secret.yaml")})
    await bench.begin(decryption={"secret": "sops"})
    await bench.declare("other", targetNamespace="elsewhere")
    sync = await bench.says("Refused", "other")
    assert sync["status"]["refused"]["field"] == "sops"
