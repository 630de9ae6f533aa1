"""How a store reaches its server: pools of the caller's, poolers, isolation levels, clocks."""

import asyncio
import socket
import subprocess
import time
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import asyncpg
import pytest
from alkstore_core import LISTENER_RECONNECTED, StopToken, Worker, open_store, worker
from alkstore_core.errors import ClosedError, DatabaseError
from alkstore_core.testing import running_tasks
from alkstore_pg import PgStore, listener
from alkstore_pg.servers import _unprivileged
from pg_servers import PGBOUNCER
from pg_waiting import query, until


async def used(store: PgStore) -> None:
    """Everything that a store does, once."""
    async with store.listen("c") as receiver, store.stream("s").subscribe("r") as events:
        async with store.transaction() as tx:
            await tx.enqueue("work", 1)
            await tx.publish("s", 1)
            await tx.notify("c")
            await tx.save_offset("s", "r", 0)
        async with asyncio.timeout(10):
            assert (await receiver.recv()).channel == "c"
            assert (await events.recv()).payload == b"1"
        ids = await asyncio.gather(*(store.queue("work").enqueue(number) for number in range(50)))
        assert len(set(ids)) == 50
        handles = await store.queue("work").claim_batch("w", 100)
        assert len(handles) == 51
        assert await handles[0].heartbeat(100)
        assert await handles[0].retry("x", delay=0)
        assert all(await asyncio.gather(*(handle.ack() for handle in handles[1:])))
        async with store.transaction() as tx:
            tx.connection.is_closed()
            await tx.enqueue("work", 2)
            await tx.rollback()
        lock = await store.try_lock("l", "me", 10)
        assert await lock.renew(10)
        assert await lock.release()
        await store.schedule("x", "@every 1s", "work", 1)
        assert await store.unschedule("x")
        assert await store.stream("s").trim_to(2**62) >= 1
        assert await (await store.queue("work").claim_one("w")).ack()


async def test_a_pool_of_the_callers_is_used_and_left_open(dsn):
    """The store borrows, gives back, and leaves the pool to its owner."""
    async with asyncpg.create_pool(dsn, min_size=1, max_size=4) as pool:
        async with PgStore.open(pool) as store:
            await used(store)
        async with asyncio.timeout(10):
            held = [await pool.acquire() for _ in range(4)]
        assert [await connection.fetchval("SELECT 1") for connection in held] == [1] * 4
        for connection in held:
            await pool.release(connection)
        async with PgStore.open(pool, listen_dsn=dsn) as store:
            await used(store)
    with pytest.raises(DatabaseError, match="closed"):
        await PgStore.open(pool)


async def test_the_listener_of_a_callers_pool_comes_back(dsn, plain):
    """Its borrowed listening connection is lost: another is borrowed, and no slot of the pool is lost."""
    async with asyncpg.create_pool(dsn, min_size=0, max_size=3) as pool, PgStore.open(pool) as store:
        receiver = await store.listen("c")
        for _ in range(5):
            await plain.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            async with asyncio.timeout(10):
                while (await receiver.recv()).channel != LISTENER_RECONNECTED:
                    pass
        async with asyncio.timeout(10):
            async with store.transaction() as first, store.transaction() as second:
                assert await first.connection.fetchval("SELECT 1") == await second.connection.fetchval("SELECT 1")


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
async def test_a_servers_default_isolation_level_changes_nothing(dsn, plain, level):
    """READ COMMITTED is stated: concurrent claims do not fail where the default is stricter, on whichever pool."""
    database = urlsplit(dsn).path.strip("/")
    await plain.execute(f"ALTER DATABASE {database} SET default_transaction_isolation = '{level}'")
    async with asyncpg.create_pool(dsn, min_size=1, max_size=8) as pool:
        for target in (dsn, pool):
            async with PgStore.open(target) as store:
                await used(store)
                await store.queue("many").enqueue_many(range(200))
                claimed = await asyncio.gather(*(store.queue("many").claim_batch(f"w{n}", 10) for n in range(20)))
                assert len({handle.job.id for handles in claimed for handle in handles}) == 200


async def test_a_session_that_a_transaction_changed_is_reset(dsn):
    """SET, LISTEN and advisory locks of a caller's transaction do not reach the next user of the connection."""
    async with PgStore.open(dsn, max_size=1) as store:
        async with store.transaction() as tx:
            await tx.connection.execute("SET search_path = nowhere; SET statement_timeout = 7; LISTEN x")
            await tx.connection.execute("SELECT pg_advisory_lock(1)")
        async with store.transaction() as tx:
            assert await tx.connection.fetchval("SHOW statement_timeout") == "0"
            assert await tx.connection.fetchval("SELECT count(*) FROM pg_listening_channels()") == 0
            assert await tx.connection.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


async def test_times_are_the_servers(dsn, plain, monkeypatch):
    """A process whose clock is minutes off claims, locks and schedules by the server's clock, and waits by it."""
    for shift in (-300, 300):
        monkeypatch.setattr(time, "time", lambda shift=shift, real=time.time: real() + shift)
        async with PgStore.open(dsn) as store:
            server = await plain.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
            assert abs(store.engine.now() - server) < 2
            await store.queue(f"work{shift}").enqueue(1, delay=1)
            assert await store.queue(f"work{shift}").claim_one("w") is None
            due = await store.session().next_due(f"work{shift}")
            async with asyncio.timeout(10):
                await store.engine.sleep_until(due)
            assert await store.queue(f"work{shift}").claim_one("w") is not None
            lock = await store.try_lock(f"l{shift}", "me", 100)
            assert abs(lock.expires_at - server - 100) < 4
        monkeypatch.undo()


async def test_open_says_what_is_wrong(dsn):
    """A server that is not there, a wrong database, and a malformed DSN are errors with advice; nothing is left."""
    before = running_tasks()
    parts = urlsplit(dsn)
    for wrong, advice in (
        (f"postgresql://x@127.0.0.1:{_free_port()}/x", "check that it runs"),
        (f"postgresql://{parts.username}@{parts.hostname}:{parts.port}/nowhere", "create the database"),
        ("postgresql://[", "check the DSN"),
    ):
        with pytest.raises(DatabaseError, match=advice):
            await PgStore.open(wrong)
    with pytest.raises(DatabaseError, match="pool"):
        PgStore.open(7)
    with pytest.raises(ValueError, match="max_size"):
        PgStore.open(dsn, min_size=3, max_size=2)
    assert running_tasks() == before


async def test_a_cancelled_open_leaves_nothing(dsn, plain):
    """However far an opening has come, cancelled it leaves no task and no connection."""
    async with PgStore.open(dsn):
        pass
    before = running_tasks()
    for steps in range(40):

        async def opened() -> None:
            async with PgStore.open(dsn):
                pass

        task = asyncio.ensure_future(opened())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    await until(query(plain, others, 0))
    assert running_tasks() == before


async def test_open_store_finds_the_engine_by_either_scheme(dsn):
    """``postgresql://`` and ``postgres://`` name the same store."""
    async with open_store(dsn) as store:
        job_id = await store.queue("work").enqueue(1)
    async with open_store(dsn.replace("postgresql://", "postgres://"), max_size=2) as store:
        assert (await store.queue("work").claim_one("w")).job.id == job_id
    with pytest.raises(ClosedError):
        await store.queue("work").enqueue(1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
async def pgbouncer(dsn, tmp_path):
    """PgBouncer in transaction mode in front of the test's database, with fewer server connections than clients."""
    async with pooled(dsn, tmp_path, "transaction") as through:
        yield through


@asynccontextmanager
async def pooled(dsn, tmp_path, mode, ignored=""):
    """The DSN of a PgBouncer in front of `dsn`, in one of its modes, that ignores some startup parameters."""
    parts, port, database = urlsplit(dsn), _free_port(), urlsplit(dsn).path.strip("/")
    settings = tmp_path / "pgbouncer.ini"
    users = tmp_path / "users"
    users.write_text(f'"{parts.username}" ""\n')
    settings.write_text(f"""
[databases]
{database} = host={parts.hostname} port={parts.port} dbname={database} user={parts.username}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
auth_file = {users}
pool_mode = {mode}
ignore_startup_parameters = {ignored}
default_pool_size = {3 if mode == "transaction" else 20}
server_reset_query =
""")
    for path in (tmp_path, settings, users):
        path.chmod(0o755)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o055)
    process = await asyncio.create_subprocess_exec(
        PGBOUNCER, str(settings), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=_unprivileged()
    )

    def answers() -> bool:
        assert process.returncode is None, "PgBouncer ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        await until(answers)
        yield f"postgresql://{parts.username}@127.0.0.1:{port}/{database}"
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.skipif(PGBOUNCER is None, reason="NOT RUN through PgBouncer: it is not installed")
async def test_everything_works_through_pgbouncer_in_transaction_mode(dsn, pgbouncer):
    """With statement_cache_size=0 and a direct listen_dsn; three server connections serve two stores of ten each."""
    await all_of_it(pgbouncer, dsn)


async def test_everything_works_where_no_session_is_met_again(dsn):
    """A pooler's restrictions without one: no prepared statements, each use of a connection its session's last."""
    async with PgStore.open(dsn, max_queries=1, max_size=1) as store:
        sessions = set()
        for _ in range(5):
            async with store.transaction() as tx:
                sessions.add(await tx.connection.fetchval("SELECT pg_backend_pid()"))
    assert len(sessions) == 5
    await all_of_it(dsn, dsn, max_queries=1)


async def all_of_it(pooled: str, direct: str, **options: object) -> None:
    """Everything that two stores do through a pooler, alone and together."""
    async with (
        PgStore.open(pooled, listen_dsn=direct, statement_cache_size=0, **options) as store,
        PgStore.open(pooled, listen_dsn=direct, statement_cache_size=0, **options) as other,
    ):
        await used(store)
        await used(other)
        await asyncio.gather(
            *(store.queue("many").enqueue(number) for number in range(300)),
            *(other.stream("many").publish(number) for number in range(300)),
        )
        claimed = await asyncio.gather(*(target.queue("many").claim_batch("w", 30) for target in (store, other) * 5))
        assert len({handle.job.id for handles in claimed for handle in handles}) == 300
        async with await store.stream("many").subscribe("c") as events:
            offsets = [(await events.recv()).offset for _ in range(300)]
        assert offsets == sorted(set(offsets))


ISOLATION = "default_transaction_isolation"


@pytest.mark.skipif(PGBOUNCER is None, reason="NOT RUN through PgBouncer: it is not installed")
async def test_a_pooler_that_refuses_the_session_is_an_error_that_names_listen_dsn(pgbouncer):
    """Without a listen_dsn the store states its isolation level as it connects, which PgBouncer refuses."""
    with pytest.raises(DatabaseError, match="listen_dsn"):
        await PgStore.open(pgbouncer, statement_cache_size=0)


@pytest.mark.skipif(PGBOUNCER is None, reason="NOT RUN through PgBouncer: it is not installed")
@pytest.mark.parametrize("busy", [False, True])
async def test_who_cannot_listen_through_a_pooler_is_told_at_once(dsn, tmp_path, monkeypatch, busy):
    """No listen_dsn, and sessions that change with each transaction: listening fails within seconds, and says why.

    Also where the pooler has one idle session, so that a store that only talks to itself would hear all it says. The
    rest of the store works, and a worker finds its jobs by looking, with warnings in the log.
    """
    monkeypatch.setattr(worker, "_RESCAN_S", 0.1)  # how often it looks is not what is tested
    async with (
        pooled(dsn, tmp_path, "transaction", ISOLATION) as through,
        PgStore.open(through, statement_cache_size=0) as store,
        AsyncExitStack() as held,
    ):
        if busy:
            for _ in range(2):
                await held.enter_async_context(store.transaction())
        for _ in range(3):
            async with asyncio.timeout(6):
                with pytest.raises(DatabaseError, match="listen_dsn"):
                    await store.listen("c")
        with pytest.raises(DatabaseError, match="listen_dsn"):
            await store.stream("s").subscribe("c")
        done, stop = [], StopToken()

        async def handler(handle) -> None:
            done.append(handle.job.payload_as(int))
            stop.cancel()

        await store.queue("work").enqueue(7)
        async with asyncio.timeout(10):
            await Worker(store.queue("work"), handler).run(stop)
        assert done == [7]


@pytest.mark.skipif(PGBOUNCER is None, reason="NOT RUN through PgBouncer: it is not installed")
async def test_a_callers_pool_behind_a_pooler_is_no_way_to_listen_either(dsn, tmp_path):
    """A pool of the caller's that leads to the pooler: the same error, and with a listen_dsn everything works."""
    async with (
        pooled(dsn, tmp_path, "transaction") as through,
        asyncpg.create_pool(through, statement_cache_size=0, min_size=0, max_size=3) as pool,
    ):
        async with PgStore.open(pool) as store, asyncio.timeout(6):
            with pytest.raises(DatabaseError, match="listen_dsn"):
                await store.listen("c")
        async with PgStore.open(pool, listen_dsn=dsn) as store:
            await used(store)


@pytest.mark.skipif(PGBOUNCER is None, reason="NOT RUN through PgBouncer: it is not installed")
async def test_a_pooler_that_keeps_sessions_is_listened_through(dsn, tmp_path):
    """The control: PgBouncer in session mode hands notifications on, and nobody is refused."""
    async with pooled(dsn, tmp_path, "session", ISOLATION) as through, PgStore.open(through) as store:
        await used(store)
        async with PgStore.open(dsn) as other, await store.listen("c") as receiver:
            await other.notify("c")
            async with asyncio.timeout(10):
                assert (await receiver.recv()).channel == "c"


@pytest.mark.skipif(PGBOUNCER is None, reason="NOT RUN through PgBouncer: it is not installed")
async def test_who_listened_before_a_pooler_came_between_is_told_to_look(dsn, plain, tmp_path, monkeypatch):
    """Listening is lost to a pooler: every receiver is woken again and again, as it is when a connection comes back."""
    monkeypatch.setattr(listener, "_DEAF_PAUSE_S", 0.1)  # nor is how often
    async with pooled(dsn, tmp_path, "transaction", ISOLATION) as through, PgStore.open(dsn) as store:
        receiver = await store.listen("c")
        monkeypatch.setattr(store.engine._dialling, "_dsn", through)
        for _ in range(2):
            await plain.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%served_by%'"
            )
            async with asyncio.timeout(10):
                assert (await receiver.recv()).channel == LISTENER_RECONNECTED
