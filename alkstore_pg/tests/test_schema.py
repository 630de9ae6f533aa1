"""Schemas: made by many at once, prepared by others, kept apart (X2)."""

import asyncio
import subprocess
import sys
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from alkstore_core.errors import DatabaseError, InvalidNameError
from alkstore_pg import PgStore
from alkstore_pg.schema import VERSION, ddl

PROCESSES = 20
ROUNDS = 20

OPENER = """
import asyncio, sys
from alkstore_pg import PgStore

async def main(dsn):
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        async with PgStore.open(dsn, schema=line.strip()) as store:
            await store.queue("q").enqueue(1)
        print("ok", flush=True)

asyncio.run(main(sys.argv[1]))
"""

SHAPE = """
SELECT c.relname, c.relkind, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_indexdef(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_attribute a ON a.attrelid = c.oid
WHERE n.nspname = 'alkstore' AND a.attnum > 0 ORDER BY 1, 2, 3
"""
FUNCTIONS = "SELECT proname, prosrc, proconfig FROM pg_proc WHERE pronamespace = 'alkstore'::regnamespace ORDER BY 1"


async def test_twenty_processes_open_at_once_twenty_times(dsn18):
    """Twenty processes open a schema that nobody has made yet, at the same moment, twenty times: no error."""
    openers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", OPENER, dsn18, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(PROCESSES)
    ]
    try:
        for round in range(ROUNDS):
            for opener in openers:
                opener.stdin.write(f"round_{round}\n".encode())
            answers = await asyncio.gather(*(opener.stdout.readline() for opener in openers))
            if answers != [b"ok\n"] * PROCESSES:
                for opener in openers:  # they wait for another line
                    opener.stdin.close()
                errors = await asyncio.gather(*(opener.communicate() for opener in openers))
                pytest.fail("\n".join(error.decode() for _, error in errors if error))
    finally:
        for opener in openers:
            if not opener.stdin.is_closing():
                opener.stdin.close()
        await asyncio.gather(*(opener.wait() for opener in openers))
    plain = await asyncpg.connect(dsn18)
    for round in range(ROUNDS):
        assert await plain.fetchval(f"SELECT max(version) FROM round_{round}.migrations") == VERSION
        assert await plain.fetchval(f"SELECT count(*) FROM round_{round}.jobs") == PROCESSES
    await plain.close()


async def test_the_printed_ddl_is_what_opening_makes(dsn, plain):
    """The DDL run by hand and the schema that `open` makes are the same."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "alkstore_pg.schema", stdout=subprocess.PIPE)
    printed = (await process.communicate())[0].decode()
    assert printed == ddl()
    async with plain.transaction():
        await plain.execute(printed)
    by_hand = await plain.fetch(SHAPE), await plain.fetch(FUNCTIONS)
    async with PgStore.open(dsn, migrate=False) as store:
        await store.queue("work").enqueue(1)
    await plain.execute("DROP SCHEMA alkstore CASCADE")
    async with PgStore.open(dsn):
        pass
    assert (await plain.fetch(SHAPE), await plain.fetch(FUNCTIONS)) == by_hand


@pytest.mark.parametrize("version", [None, 0, VERSION + 1])
async def test_without_migrating_a_missing_older_or_newer_schema_is_refused(dsn, plain, version):
    """`migrate=False` says what is wrong and what to do; a newer schema is refused either way and not touched."""
    if version is not None:
        async with PgStore.open(dsn):
            pass
        await plain.execute("DELETE FROM alkstore.migrations")
        await plain.execute("INSERT INTO alkstore.migrations (version) VALUES ($1)", version)
    newer = version == VERSION + 1
    with pytest.raises(DatabaseError, match="upgrade alkstore-pg" if newer else "alkstore_pg.schema"):
        await PgStore.open(dsn, migrate=False)
    if newer:
        with pytest.raises(DatabaseError, match="upgrade alkstore-pg"):
            await PgStore.open(dsn)
        assert await plain.fetchval("SELECT max(version) FROM alkstore.migrations") == version


async def test_a_role_without_create_rights_runs_on_a_prepared_schema(dsn, plain):
    """With the grants of the documentation, a role that may create nothing uses everything."""
    role = "app_" + urlsplit(dsn).path.strip("/")
    async with PgStore.open(dsn):
        pass
    await plain.execute(f"""
        CREATE ROLE {role} LOGIN;
        REVOKE CREATE ON SCHEMA public FROM PUBLIC;
        GRANT USAGE ON SCHEMA alkstore TO {role};
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA alkstore TO {role};
        GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA alkstore TO {role};
    """)
    parts = urlsplit(dsn)
    own = urlunsplit(parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port}"))
    try:
        async with PgStore.open(own) as store, await store.stream("s").subscribe("c") as receiver:
            async with store.transaction() as tx:
                await tx.enqueue("work", 1)
                await tx.publish("s", 1)
                await tx.notify("c")
            assert (await receiver.recv()).payload == b"1"
            assert await (await store.queue("work").claim_one("w")).ack()
            assert await (await store.try_lock("l", "me", 10)).release()
            await store.schedule("s", "@every 1s", "work", {})
            assert await store.unschedule("s")
            assert await store.stream("s").trim_to(100) == 1
            mailbox = store.mailbox("m")
            holder = await mailbox.attach(source="run", subject="7")
            await mailbox.send(1)
            delivery = await mailbox.check(holder)
            assert (await mailbox.acknowledge(holder, delivery.id)).duplicate is False
        with pytest.raises(DatabaseError, match="migrate=False"):
            await PgStore.open(own, schema="other")
    finally:
        await plain.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_stores_with_different_schemas_do_not_see_each_other(dsn):
    """Jobs, events, locks and wakes of one schema do not exist for another, whatever its name."""
    names = ["alkstore", 'we"ird', "O'Neill", "ünïcode", "x" * 63]
    stores = [await PgStore.open(dsn, schema=name) for name in names]
    receivers = [await store.listen("c") for store in stores]
    for number, store in enumerate(stores):
        await store.queue("work").enqueue(number)
        await store.stream("s").publish(number)
        assert await store.try_lock("l", name := f"owner-{number}", 100) is not None, name
        await store.notify("c")
        assert (await receivers[number].recv()).channel == "c"
        for other in receivers[number + 1 :]:
            assert await other.try_recv() is None
    for number, store in enumerate(stores):
        jobs = await store.queue("work").claim_batch("w", 10)
        assert [handle.job.payload for handle in jobs] == [str(number).encode()]
        assert [event.payload for event in await store.stream("s").read_since(0)] == [str(number).encode()]
        await store.close()


@pytest.mark.parametrize("name", ["", "pg_x", "x" * 64, "a\0b", None])
def test_what_postgres_cannot_have_as_a_schema_is_refused_at_once(name):
    """A name that Postgres would refuse or cut is an error before anything is connected."""
    with pytest.raises(InvalidNameError):
        PgStore.open("postgresql://nowhere.invalid/x", schema=name)
