"""Secrets that hold a service account's token: filled in as they are asked for, and gone with the account."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import orjson

from homeostat.api.auth.serviceaccounts import ACCOUNT_NAME, ACCOUNT_UID, SECRET_TYPE
from homeostat.api.controllers.worker import Worker
from homeostat.api.delete import DeleteOptions, remove
from homeostat.api.resource import Object, split_key
from homeostat.model.errors import ApiError
from homeostat.store import Event

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane

_TYPE = f'"{SECRET_TYPE}"'.encode()
_FINAL = frozenset({"NotFound", "Conflict", "Invalid", "Forbidden"})
"""Refusals that no second try would change: the next change of the Secret brings us here again."""


class AccountTokens:
    """Looks at every Secret of the type whenever it changes, or its account goes."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._accounts: dict[str, tuple[str, str]] = {}  # by the key of the Secret: the key and the uid of its account
        self._worker = Worker("account-tokens", self._look)

    async def start(self) -> None:
        await self._plane.follower.follow("secrets/", self._secret_changed)
        await self._plane.follower.follow("serviceaccounts/", self._account_changed)
        self._worker.start()

    async def stop(self) -> None:
        await self._worker.stop()

    def _secret_changed(self, event: Event) -> None:
        if event.value is None:
            if event.key in self._accounts:
                self._worker.add(event.key)
        elif _TYPE in event.value:
            secret = orjson.loads(event.value)
            if secret.get("type") == SECRET_TYPE:
                said = secret["metadata"].get("annotations") or {}
                account = f"serviceaccounts/{secret['metadata']['namespace']}/{said.get(ACCOUNT_NAME) or ''}"
                self._accounts[event.key] = (account, said.get(ACCOUNT_UID) or "")
                self._worker.add(event.key)

    def _account_changed(self, event: Event) -> None:
        if event.value is None:
            for key, (account, _) in self._accounts.items():
                if account == event.key:
                    self._worker.add(key)

    async def _look(self, key: str) -> None:
        try:
            await self._settle(key)
        except ApiError as error:
            if error.reason not in _FINAL:
                raise

    async def _settle(self, key: str) -> None:
        plane = self._plane
        entry = await plane.store.get(key)
        account, uid = self._accounts[key]
        holder = await plane.store.get(account)
        metadata = orjson.loads(holder.value)["metadata"] if holder is not None else {}
        known = bool(metadata) and uid in ("", metadata["uid"])
        _, namespace, name = split_key(key)
        if entry is None:
            del self._accounts[key]
            if known:
                await plane.act("serviceaccounts", namespace, metadata["name"], lambda live: _without(live, name))
        elif not known:
            secrets = plane.registry.get("secrets")
            assert secrets is not None
            gone = DeleteOptions(uid=orjson.loads(entry.value)["metadata"]["uid"])
            await remove(plane, plane.internal("delete", secrets, namespace, name), gone)
        else:
            await plane.act("secrets", namespace, name, lambda live: self._filled(live, metadata))

    def _filled(self, secret: Object, account: Object) -> Object:
        """The Secret with what it lacks; itself where that is nothing."""
        metadata, data = secret["metadata"], dict(secret.get("data") or {})
        namespace, uid = account["namespace"], account["uid"]
        authority = self._plane.authority
        if authority:
            data["ca.crt"] = _text(authority)
        if not data.get("namespace"):
            data["namespace"] = _text(namespace.encode())
        if not data.get("token"):
            tokens = self._plane.authenticator.service_accounts
            data["token"] = _text(tokens.of_secret(namespace, account["name"], uid, metadata["name"]).encode())
        if data == secret.get("data"):
            return secret
        annotations = {**(metadata.get("annotations") or {}), ACCOUNT_UID: uid}
        return {**secret, "metadata": {**metadata, "annotations": annotations}, "data": data}


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _without(account: Object, secret: str) -> Object:
    """The account without the mention of a Secret; itself where it does not mention it."""
    mentioned = account.get("secrets") or []
    left = [reference for reference in mentioned if reference.get("name") != secret]
    return account if len(left) == len(mentioned) else {**account, "secrets": left}
