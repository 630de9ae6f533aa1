"""One engine's side of the comparison: its stores, and what it gave out, under names that all sides share.

Ids, offsets and tokens are an engine's own, gaps included. Here each is known by its place in the order in which they
were given out, which is the same on every side.
"""

import asyncio
import gc
import warnings
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from alkstore_contract_suite.harness import JobCounts, MailboxRows, NativeTransaction
from alkstore_core import (
    Delivery,
    EventReceiver,
    Job,
    JobState,
    Message,
    Store,
    StreamEvent,
    Transaction,
    Wake,
    WakeReceiver,
)
from alkstore_core.engine import Claim, LockGrant
from alkstore_core.errors import AlkstoreError, ClosedError, DatabaseError
from alkstore_core.numbers import INT64_MIN
from alkstore_core.outbox import backing_queue
from draws import CHANNEL, CONSUMERS, LONGEST, MAILBOXES, OUTBOX, QUEUES, STREAMS, Newest
from drivers import PATIENCE_S, Driver

ALL_QUEUES = (*QUEUES, backing_queue(OUTBOX))


class DisagreementError(AssertionError):
    """The engines do not agree, or one of them breaks a rule that is seen without another."""


@dataclass(frozen=True, slots=True)
class Raised:
    """A refusal: its class, and its words where they are core's."""

    kind: str
    message: str


async def outcome(call: Awaitable[object], *, refusals: tuple[type[Exception], ...] = (AlkstoreError,)) -> object:
    """What `call` returned, or how it refused. What hangs, fails."""
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            return await call
    except refusals as error:
        engines_own = isinstance(error, ClosedError | DatabaseError) and not isinstance(error.__cause__, ValueError)
        return Raised(type(error).__name__, "" if engines_own else str(error))


class Numbers:
    """Numbers of one kind, by the order in which they were given out."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._numbers: list[int] = []
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def greatest(self) -> int:
        """The greatest number that is not retired."""
        return max(self._places, default=INT64_MIN)

    def add(self, number: int) -> int:
        """The place of a new number."""
        if number <= self.greatest:
            raise DisagreementError(f"{self._what} {number} was given out after {self.greatest}")
        self._places[number] = len(self._numbers)
        self._numbers.append(number)
        return self._places[number]

    def place(self, number: int) -> int:
        """The place of a number that was given out before."""
        if number not in self._places:
            raise DisagreementError(f"nobody was ever given the {self._what} {number}")
        return self._places[number]

    def knows(self, number: int) -> bool:
        """Whether it was given out, and stands."""
        return number in self._places

    def number(self, place: int) -> int:
        """The number at a place."""
        return self._numbers[place]

    def retire(self, place: int) -> None:
        """It was rolled back: an engine may give it out again."""
        del self._places[self._numbers[place]]

    def standing(self) -> list[int]:
        """The places that are not retired, ascending."""
        return sorted(self._places.values())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that somebody outside of any transaction can see."""

    jobs: dict[int, Job | None]
    events: dict[str, list[StreamEvent]]
    offsets: dict[tuple[str, str], object]
    next_due: dict[str, int | None]
    next_fire: int | None
    mail: dict[str, list[object]]


class Side:
    """One engine, two stores on its data, and at most one transaction."""

    def __init__(self, driver: type[Driver], directory: Path) -> None:
        directory.mkdir()
        self.driver = driver
        self.harness = driver.harness(directory)
        self.stores: list[Store] = []
        self.ears: list[WakeReceiver] = []
        self.jobs = Numbers("job id")
        self.queue_of: list[str] = []
        self.events = {stream: Numbers(f"offset of {stream!r}") for stream in STREAMS}
        self.tokens: dict[str, Numbers] = {}
        self.claims: list[Claim] = []
        self.grants: list[LockGrant] = []
        self.messages: list[str] = []
        self.deliveries: list[str] = []
        self.members: dict[str, list[str]] = {}
        self.generations: dict[tuple[str, str, str], int] = {}
        self.receivers: list[tuple[int, EventReceiver]] = []
        self.tx: Transaction | None = None
        self.native: NativeTransaction | None = None
        self.native_block = AsyncExitStack()
        self.savepoints: list[tuple[Any, int]] = []
        self._made: list[tuple[Numbers, int]] = []
        self._gone: set[int] = set()

    # stores

    async def start(self) -> None:
        """Open two stores on an empty place."""
        await self.harness.start()
        for on in (0, 1):
            await self.open(on)

    async def stop(self) -> None:
        """End everything."""
        self.receivers.clear()
        for store in self.stores:
            await store.close()
        await self.harness.stop()

    async def open(self, on: int) -> None:
        """Open a store, the first time or again."""
        store = await self.harness.open(patience_s=PATIENCE_S)
        store.draw = lambda low, high: low + (high - low) // 3
        self.stores[on : on + 1] = [store]
        self.ears[on : on + 1] = [await store.listen(CHANNEL)]

    async def crash(self, on: int, *, undecided: bool) -> list[str]:
        """Drop a store, with all that hangs on it, as a program does that just ends, and open another; the warnings.

        Args:
            on: which store.
            undecided: whether the transaction's handle goes with it.
        """
        store, engine = weakref.ref(self.stores[on]), self.stores[on].engine
        receivers = [receiver for receiver in self.receivers if receiver[0] != on]

        def drop() -> None:
            self.receivers[:] = receivers
            self.tx = None if undecided else self.tx
            self.stores[on] = self.ears[on] = None  # type: ignore[call-overload]

        told = self._dropped(drop, store)
        await self.driver.bury(engine)
        await self.open(on)
        return told

    def drop_transaction(self) -> list[str]:
        """Let go of the open transaction; the warnings."""

        def drop() -> None:
            self.tx = None

        return self._dropped(drop, weakref.ref(self.tx))

    def _dropped(self, drop: Callable[[], None], watched: "weakref.ref[object]") -> list[str]:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            drop()
            if watched() is not None:
                gc.collect()
        subjects = _subjects(told)
        told.clear()  # a warning holds on to what it is about
        if watched() is not None:
            raise DisagreementError(f"{self.driver.name}: something holds on to what was dropped")
        return subjects

    async def heard(self) -> None:
        """Return once every store's listener has heard of a notify (N2, N7)."""
        for ear in self.ears:
            async with asyncio.timeout(10):
                if await ear.recv() != Wake(CHANNEL):
                    raise DisagreementError(f"{self.driver.name}: a wake of another kind")

    # names shared by all sides

    def made_job(self, job_id: int, queue: str, *, in_tx: bool = False) -> int:
        """Note a new job."""
        self.queue_of.append(queue)
        return self._made_one(self.jobs, job_id, in_tx=in_tx)

    def made_event(self, stream: str, offset: int, *, in_tx: bool = False) -> int:
        """Note a new event."""
        return self._made_one(self.events[stream], offset, in_tx=in_tx)

    def _made_one(self, numbers: Numbers, number: int, *, in_tx: bool) -> int:
        place = numbers.add(number)
        if in_tx:
            self._made.append((numbers, place))
        return place

    def mark(self) -> int:
        """How much the open transaction has made."""
        return len(self._made)

    def unmade(self, mark: int) -> None:
        """What the transaction made after `mark` was rolled back."""
        for numbers, place in self._made[mark:]:
            numbers.retire(place)
        del self._made[mark:]

    def kept(self) -> None:
        """What the transaction made was committed."""
        self._made.clear()

    def job(self, job: Job | None) -> Job | None:
        """A job as every side shows it."""
        return None if job is None else replace(job, id=self.jobs.place(job.id))

    def event(self, event: StreamEvent) -> StreamEvent:
        """An event as every side shows it."""
        return replace(event, offset=self.events[event.stream].place(event.offset))

    def seen_events(self, events: list[StreamEvent]) -> list[StreamEvent]:
        """Events likewise."""
        return [self.event(event) for event in events]

    def saved(self, stream: str, offset: int) -> object:
        """A saved offset as every side shows it."""
        numbers = self.events[stream]
        return ("event", numbers.place(offset)) if numbers.knows(offset) else offset

    def claim(self, claim: Claim) -> tuple[int, Job | None]:
        """Note a claim; its place, and its job."""
        self.claims.append(claim)
        return len(self.claims) - 1, self.job(claim.job)

    def grant(self, grant: LockGrant | None) -> object:
        """Note a holding; what every side shows of it, its token by its place among those of the name (L5)."""
        if grant is None:
            return None
        self.grants.append(grant)
        tokens = self.tokens.setdefault(grant.name, Numbers(f"token of {grant.name!r}"))
        place = tokens.place(grant.token) if tokens.knows(grant.token) else tokens.add(grant.token)
        return grant.name, grant.owner, grant.expires_at, place

    def job_id(self, which: Newest | int) -> int:
        """The engine's id for what was drawn."""
        if isinstance(which, int):
            return which
        standing = self.jobs.standing()
        return self.jobs.number(standing[-1 - which.back]) if which.back < len(standing) else 0

    def offset(self, stream: str, which: Newest | int) -> int:
        """The engine's offset for what was drawn."""
        if isinstance(which, int):
            return which
        numbers = self.events[stream]
        standing = numbers.standing()
        return numbers.number(standing[-1 - which.back]) if which.back < len(standing) else 0

    def made_message(self, id: str) -> int:
        """Note a new message; its place. One that is rolled back keeps it: an id is never given out again."""
        if id in self.messages:
            raise DisagreementError(f"the message id {id} was given out twice")
        self.messages.append(id)
        return len(self.messages) - 1

    def message_id(self, back: int) -> str:
        """The engine's id for the message sent `back` before the latest."""
        return self.messages[-1 - back] if back < len(self.messages) else "nothing"

    def delivery_id(self, which: Newest) -> str:
        """The engine's id for the delivery that was drawn."""
        return self.deliveries[-1 - which.back] if which.back < len(self.deliveries) else "nothing"

    def batch(self, which: Newest) -> list[str]:
        """The engine's ids for the messages of that delivery."""
        return self.members.get(self.delivery_id(which), [])

    def message(self, message: Message) -> object:
        """A message as every side shows it."""
        return self.messages.index(message.id), message.mailbox, message.type, message.payload, message.created_at

    def delivery(self, delivery: Delivery | None) -> object:
        """Note a delivery, if it is a new one; what every side shows of it."""
        if delivery is None:
            return None
        if not delivery.replayed:
            self.deliveries.append(delivery.id)
            self.members[delivery.id] = [message.id for message in delivery.messages]
        place = self.deliveries.index(delivery.id)
        messages = [self.message(message) for message in delivery.messages]
        return place, delivery.mailbox, messages, delivery.created_at, delivery.replayed

    def mail_rows(self, rows: MailboxRows) -> tuple[object, list[object], list[int]]:
        """What is stored of a mailbox, as every side shows it."""
        deliveries = [
            (
                self.deliveries.index(row.id),
                [self.messages.index(id) for id in row.message_ids],
                row.generation,
                row.created_at,
                row.acknowledged_at,
                row.fenced,
            )
            for row in rows.deliveries
        ]
        unread = [self.messages.index(id) for id in rows.unread]
        return unread, sorted(deliveries, key=repr), sorted(self.deliveries.index(id) for id in rows.outstanding)

    # what is there to see

    async def snapshot(self, on: int) -> Snapshot:
        """What a store shows, outside of any transaction."""
        session, now = self.stores[on].session(), self.harness.clock.now()
        standing = [place for place in self.jobs.standing() if place not in self._gone]
        pairs = [(stream, consumer) for stream in STREAMS for consumer in CONSUMERS]
        jobs, events, offsets, due, mail, next_fire = await asyncio.gather(
            _all([session.find_job(self.jobs.number(place), None) for place in standing]),
            _all([session.read_events(stream, INT64_MIN, LONGEST) for stream in STREAMS]),
            _all([session.get_offset(stream, consumer) for stream, consumer in pairs]),
            _all([session.next_due(queue) for queue in ALL_QUEUES]),
            _all([self.stores[on].mailbox(name).pending() for name in MAILBOXES]),
            session.next_fire(),
        )
        if self.tx is None and self.native is None:  # a job that has gone does not come back
            self._gone.update(place for place, job in zip(standing, jobs, strict=True) if job is None)
        return Snapshot(
            {place: self.job(job) for place, job in zip(standing, jobs, strict=True) if job is not None},
            {stream: self.seen_events(seen) for stream, seen in zip(STREAMS, events, strict=True)},
            {pair: self.saved(pair[0], offset) for pair, offset in zip(pairs, offsets, strict=True)},
            # What is due already is due now, whenever that was.
            {queue: None if at is None else max(at, now) for queue, at in zip(ALL_QUEUES, due, strict=True)},
            next_fire,
            {name: [self.message(one) for one in seen] for name, seen in zip(MAILBOXES, mail, strict=True)},
        )

    async def inside(self) -> dict[str, object]:
        """What the open transaction shows (T6)."""
        tx = self.tx
        assert tx is not None
        shown: dict[str, object] = {}
        for place in self.jobs.standing():
            queue = self.queue_of[place]
            if queue in QUEUES and place not in self._gone:
                shown[f"job {place}"] = self.job(await tx.get_job(queue, self.jobs.number(place)))
        for stream in STREAMS:
            shown[f"events of {stream}"] = self.seen_events(await tx.read_since(stream, INT64_MIN, LONGEST))
            for consumer in CONSUMERS:
                shown[f"{consumer} of {stream}"] = self.saved(stream, await tx.get_offset(stream, consumer))
        if self.native is None:
            shown["rows"] = await self.harness.read(tx)
        return shown

    async def witnessed(self, snapshot: Snapshot) -> list[str]:
        """Hold the rows themselves against a snapshot, so that no ghost is left (T3); the caller's own rows."""
        witness = self.harness.witness
        for queue in ALL_QUEUES:
            states = [job.state for job in snapshot.jobs.values() if job is not None and job.queue == queue]
            expected = JobCounts(*(states.count(state) for state in JobState))
            if (counted := await witness.jobs(queue)) != expected:
                raise DisagreementError(
                    f"{self.driver.name}: of {queue!r} {counted} are stored, and {expected} are seen"
                )
        for stream in STREAMS:
            seen = [self.events[stream].number(event.offset) for event in snapshot.events[stream]]
            if (stored := await witness.events(stream)) != seen:
                raise DisagreementError(f"{self.driver.name}: of {stream!r} {stored} are stored, and {seen} are seen")
        return await witness.business()

    async def found(self, on: int) -> list[Job | None]:
        """Jobs that were enqueued without telling anybody their ids: those of schedules."""
        stored = 0
        for queue in ALL_QUEUES:
            counts = await self.harness.witness.jobs(queue)
            stored += counts.pending + counts.processing + counts.dead
        known = await self.snapshot(on)
        missing = stored - len(known.jobs)
        session = self.stores[on].session()
        job_id, found = max(self.jobs.greatest, 0), list[Job | None]()
        for _ in range(10 * missing + 100):
            if len(found) == missing:
                return found
            job_id += 1
            job = await session.find_job(job_id, None)
            if job is not None:
                self.made_job(job_id, job.queue)
                found.append(self.job(job))
        raise DisagreementError(
            f"{self.driver.name}: {missing} jobs are stored that nobody enqueued, and {len(found)} seen"
        )


async def _all(reads: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    return list(await asyncio.gather(*reads))


def _subjects(told: list[warnings.WarningMessage]) -> list[str]:
    """What alkstore warned of; drivers have warnings of their own."""
    texts = [str(warning.message) for warning in told if warning.category is ResourceWarning]
    return sorted(subject for text in texts for subject in ("never closed", "dropped undecided") if subject in text)


Call = Callable[[Side], Awaitable[object]]
Show = Callable[[Side, Any], object]
