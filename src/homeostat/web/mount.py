"""Puts the dashboard beside the API of a control plane in this process."""

from __future__ import annotations

import socket

from homeostat.api.auth.user import AUTHENTICATED, MASTERS, User
from homeostat.api.local import local_client
from homeostat.api.server import ADMIN, Server
from homeostat.web.board import Board
from homeostat.web.site import PREFIX, Site

READER = "system:homeostat:ui"
"""As whom the board reads; what each viewer sees of it RBAC decides."""


class Dashboard:
    """The dashboard of a running server. `stop` it before the server stops."""

    def __init__(self, server: Server) -> None:
        self._client = local_client(server.plane, READER)
        self._board = Board(self._client, server.plane.clock, server.data / "figures.log")
        hosts = {"localhost", "127.0.0.1", "::1", server.listen.host, server.listen.url_host.strip("[]"), socket.gethostname()}
        self._site = Site(server.plane, self._board, frozenset(host.lower() for host in hosts))
        server.plane.mounted[PREFIX] = self._site.answer
        self._board.start()

    def admin_link(self) -> str:
        """Signs in, once, whoever opens it first, as the administrator."""
        return self._site.link(User(ADMIN, "", (MASTERS, AUTHENTICATED)))

    async def stop(self) -> None:
        await self._board.stop()
        await self._client.close()
