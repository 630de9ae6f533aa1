"""Callers are told the truth about commits whose connection was lost (T14), and nothing acknowledged is lost."""

import asyncio
import itertools
import random

import asyncpg
import pytest
from alkstore_core.errors import AlkstoreError, CommitUnknownError, DatabaseError
from alkstore_pg import PgStore
from alkstore_pg.engine import PgEngine
from alkstore_pg.servers import LocalServer
from alkstore_pg.statements import statements
from pg_proxy import proxied
from pg_waiting import until

CUTS = 400


async def test_four_hundred_cuts_around_commit_and_no_wrong_answer(dsn18):
    """The link is cut before COMMIT arrives, after it, or before its answer: success means committed, an error not."""
    plain = await asyncpg.connect(dsn18)
    await plain.execute("CREATE TABLE business (n bigint PRIMARY KEY)")
    told = {}
    draw = random.Random(1)
    async with proxied(dsn18) as (proxy, through), PgStore.open(through, max_size=4) as store:
        for number in range(CUTS):
            order = draw.choice(("before", "after", "reply"))
            proxy.on_request = lambda data, order=order: order if b"COMMIT\0" in data else None
            tx = await store.begin_tx()
            await tx.connection.execute("INSERT INTO business VALUES ($1)", number)
            if number % 3:  # with the engine's own write, or only the caller's
                await tx.enqueue("work", number)
            try:
                await tx.commit()
            except CommitUnknownError:
                raise
            except DatabaseError:
                told[number] = False
            else:
                told[number] = True
    committed = {row["n"] for row in await plain.fetch("SELECT n FROM business")}
    enqueued = await plain.fetchval("SELECT count(*) FROM alkstore.jobs")
    await plain.close()
    assert {number for number, answer in told.items() if answer} == committed
    assert set(told) == set(range(CUTS))
    assert enqueued == len([number for number in committed if number % 3])
    assert 50 < len(committed) < 350


async def test_a_cut_around_a_single_write_is_never_reported_as_a_plain_failure(dsn18):
    """An auto-commit write whose connection was lost is done, or its outcome is said to be unknown."""
    async with proxied(dsn18) as (proxy, through), PgStore.open(through) as store:
        queue = store.queue("work")
        for number, order in zip(range(60), itertools.cycle(("before", "after", "reply")), strict=False):
            await queue.get_job(1)
            proxy.on_request = lambda data, order=order: order if b'"cut here"' in data else None
            with pytest.raises(CommitUnknownError) as caught:
                await queue.enqueue({"cut here": number})
            assert isinstance(caught.value.__cause__, asyncpg.PostgresError | asyncpg.InterfaceError | OSError)
            proxy.on_request = lambda _: None
        assert len(await queue.claim_batch("w", 1000)) in range(20, 61)


async def test_a_commit_that_the_server_turned_into_a_rollback_is_not_reported_as_done(dsn, plain):
    """After a failed statement the server answers COMMIT with a rollback, and so does the store."""
    async with PgStore.open(dsn) as store:
        tx = await store.begin_tx()
        await tx.enqueue("work", 1)
        with pytest.raises(asyncpg.DivisionByZeroError):
            await tx.connection.execute("SELECT 1 / 0")
        with pytest.raises(DatabaseError, match="not committed"):
            await tx.commit()
        assert await plain.fetchval("SELECT count(*) FROM alkstore.jobs") == 0
        async with store.transaction() as tx, tx.connection.transaction():  # the connection was fine, and is used again
            await tx.enqueue("work", 2)
        assert await plain.fetchval("SELECT count(*) FROM alkstore.jobs") == 1


async def test_a_cancelled_commit_is_seen_through(dsn, plain):
    """Cancelled however often, a COMMIT that was sent comes to its outcome, and the cancellation goes on."""
    async with PgStore.open(dsn) as store:
        for number in range(30):
            tx = await store.begin_tx()
            await tx.enqueue("work", number)
            committing = asyncio.ensure_future(tx.commit())
            for _ in range(number % 5 + 1):
                await asyncio.sleep(0)
                committing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await committing
        async with store.transaction() as tx:
            await tx.enqueue("work", -1)
    count = await plain.fetchval("SELECT count(*) FROM alkstore.jobs")
    assert 1 <= count <= 31
    assert await plain.fetchval("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%'") == 0


@pytest.fixture
def lost_with_its_server(own_server, monkeypatch):
    """Commits a transaction whose server is killed as COMMIT comes; what became of it is asked after `asking`."""

    async def commit(asking) -> None:
        def kill(data: bytes) -> str | None:
            if b"COMMIT\0" not in data:
                return None
            proxy.on_request = lambda _: None
            own_server.kill()
            own_server.start()
            return "before"

        async def asked(engine: PgEngine, life: str, xid: int):
            await asking(xid)
            return await ask(engine, life, xid)

        ask = PgEngine._ask_outcome
        monkeypatch.setattr(PgEngine, "_ask_outcome", asked)
        async with proxied(own_server.dsn) as (proxy, through), PgStore.open(through) as store:
            tx = await store.begin_tx()
            await number_far_ahead(own_server.dsn)
            await tx.enqueue("work", 1)
            proxy.on_request = kill
            try:
                await tx.commit()
            finally:
                plain = await asyncpg.connect(own_server.dsn)
                assert await plain.fetchval("SELECT count(*) FROM alkstore.jobs") == 0
                await plain.close()

    return commit


async def number_far_ahead(dsn: str) -> None:
    """Use numbers up that no log has, so that the next one is not given again by accident."""
    plain = await asyncpg.connect(dsn)
    for _ in range(200):
        await plain.execute("BEGIN; SELECT pg_current_xact_id(); ROLLBACK")
    await plain.close()


@pytest.fixture
def given_again(own_server):
    """Returns once a later transaction has that number, and is committed."""

    async def use(number: int) -> None:
        plain = await asyncpg.connect(own_server.dsn)
        while await plain.fetchval("SELECT pg_current_xact_id()::text::bigint") < number:
            pass
        await plain.close()

    return use


async def test_a_lost_transaction_is_not_taken_for_a_later_one_of_its_number(lost_with_its_server, given_again):
    """A crashed server gives numbers again that were in no log yet: that one is committed says nothing of the other."""
    with pytest.raises(CommitUnknownError):
        await lost_with_its_server(given_again)


async def test_the_number_alone_would_be_believed(lost_with_its_server, given_again, monkeypatch):
    """Asked without regard to the crash, the server says that the lost transaction was committed."""
    sql = "SELECT pg_xact_status($1::text::xid8), $2::text IS NOT NULL, 0"
    monkeypatch.setattr("alkstore_pg.engine.statements", lambda schema: {**statements(schema), "outcome": sql})
    await lost_with_its_server(given_again)


async def test_a_number_that_is_not_given_out_any_more_was_lost(lost_with_its_server):
    """Right after the crash the lost transaction is in the future: it was not committed, and that is said."""

    async def at_once(_: int) -> None:
        pass

    with pytest.raises(DatabaseError, match="run it again") as raised:
        await lost_with_its_server(at_once)
    assert not isinstance(raised.value, CommitUnknownError)


async def test_nothing_acknowledged_is_lost_when_the_whole_server_is_killed(own_server: LocalServer):
    """kill -9 of all of Postgres under load, three times: whatever was acknowledged is there afterwards."""
    acknowledged: dict[str, set[int]] = {"enqueue": set(), "transaction": set(), "publish": set()}
    numbers = itertools.count()
    stopping = False

    async def write(kind: str) -> None:
        while not stopping:
            number = next(numbers)
            try:
                if kind == "enqueue":
                    await store.queue("work").enqueue(number)
                elif kind == "publish":
                    await store.stream("events").publish(number)
                else:
                    async with store.transaction() as tx:
                        await tx.enqueue("work", number)
            except AlkstoreError:
                await asyncio.sleep(0.01)
            else:
                acknowledged[kind].add(number)

    async with PgStore.open(own_server.dsn) as store:
        writers = [asyncio.ensure_future(write(kind)) for kind in acknowledged for _ in range(8)]
        for _ in range(3):
            goal = sum(map(len, acknowledged.values())) + 500
            await until(lambda goal=goal: sum(map(len, acknowledged.values())) >= goal, 60)
            await asyncio.to_thread(own_server.kill)
            await asyncio.to_thread(own_server.start)
        stopping = True
        await asyncio.gather(*writers)
    plain = await asyncpg.connect(own_server.dsn)
    jobs = {int(row["payload"]) for row in await plain.fetch("SELECT payload FROM alkstore.jobs")}
    events = {int(row["payload"]) for row in await plain.fetch("SELECT payload FROM alkstore.events")}
    await plain.close()
    assert (acknowledged["enqueue"] | acknowledged["transaction"]) - jobs == set()
    assert acknowledged["publish"] - events == set()


@pytest.mark.parametrize("order", ["before", "reply"])
async def test_a_caller_that_is_cancelled_while_the_outcome_is_looked_up_still_gets_it(dsn18, order, monkeypatch):
    """A COMMIT had no answer, and its caller is cancelled again and again: the looking up goes on, and ends."""
    asked, gate = asyncio.Event(), asyncio.Event()
    async with proxied(dsn18) as (proxy, through), PgStore.open(through) as store:
        ask = store.engine._ask_outcome

        async def ask_later(life, xid):
            asked.set()
            await gate.wait()
            return await ask(life, xid)

        monkeypatch.setattr(store.engine, "_ask_outcome", ask_later)
        proxy.on_request = lambda data: order if b"COMMIT\0" in data else None
        tx = await store.begin_tx()
        await tx.enqueue("work", 1)
        committing = asyncio.ensure_future(tx.commit())
        async with asyncio.timeout(10):
            await asked.wait()
            for _ in range(20):
                committing.cancel()
                await asyncio.sleep(0)
            assert not committing.done()
            gate.set()
            with pytest.raises(DatabaseError if order == "before" else asyncio.CancelledError):
                await committing
        assert len(await store.queue("work").claim_batch("w", 10)) == (order == "reply")
