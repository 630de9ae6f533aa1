"""The databases that tests take turns on: each gets its own empty."""

import asyncpg

LEFT = """
SELECT nspname::text FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'
UNION ALL SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace
UNION ALL SELECT unnest(setconfig) FROM pg_db_role_setting WHERE setdatabase <> 0
UNION ALL SELECT query FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


async def test_a_database_comes_back_as_new(databases):
    """What is given back with tables, schemas, settings and connections is taken without any of them."""
    dsn = await databases.take()
    connection = await asyncpg.connect(dsn)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"""
        CREATE TABLE public.plain (id integer);
        CREATE SCHEMA "We""ird" CREATE TABLE one (id integer);
        ALTER DATABASE {name} SET work_mem = '1MB';
    """)
    await databases.give_back(dsn)
    assert connection.is_closed()
    assert await databases.take() == dsn
    connection = await asyncpg.connect(dsn)
    assert [row[0] for row in await connection.fetch(LEFT)] == ["public"]
    await connection.close()
    await databases.give_back(dsn)


async def test_nobody_shares_a_database(databases):
    """Two that are taken at once are two."""
    taken = [await databases.take() for _ in range(2)]
    assert len(set(taken)) == 2
    for dsn in taken:
        await databases.give_back(dsn)
