"""Which servers this run has: Postgres 18 and, where the machine has it, 15; PgBouncer, where the machine has it."""

import asyncio
import os
import shutil

from alkstore_pg.databases import Databases
from alkstore_pg.servers import DSN_VARIABLE, LocalServer, NoServerError, binaries

NEWEST = 18
OLDER = 15
PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def _versions() -> list[str]:
    if os.environ.get(DSN_VARIABLE):
        return ["given"]
    try:
        binaries(OLDER)
    except NoServerError as error:
        ABSENT[f"on Postgres {OLDER}"] = str(error)
        return [str(NEWEST)]
    return [str(NEWEST), str(OLDER)]


ABSENT: dict[str, str] = {}
"""What this machine lacks, and why."""
VERSIONS = _versions()
if PGBOUNCER is None:
    ABSENT["through PgBouncer"] = "pgbouncer is not installed; its restrictions were imposed without it"


class Machine:
    """The servers of this run, started when first asked for."""

    def __init__(self) -> None:
        self._servers: dict[str, LocalServer] = {}
        self._databases: dict[str, Databases] = {}

    def databases(self, version: str) -> Databases:
        """The databases of one of `VERSIONS`."""
        if version not in self._databases:
            self._databases[version] = Databases(self._dsn(version))
        return self._databases[version]

    def _dsn(self, version: str) -> str:
        if version == "given":
            return os.environ[DSN_VARIABLE]
        server = self._servers[version] = LocalServer(binaries(int(version)), ("fsync=off", "max_connections=300"))
        server.start()
        return server.dsn

    def remove(self) -> None:
        """Leave nothing behind."""
        if "given" in self._databases:
            asyncio.run(self._databases["given"].drop_all())
        for server in self._servers.values():
            server.remove()
