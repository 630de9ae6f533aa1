"""Queue, enqueue and schedule options, checked once and then carried as values (Q1, Q2, V6, H1)."""

from dataclasses import dataclass

from alkstore_core.numbers import at_least, int64, optional_int64


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """What a queue handle stamps on every job it enqueues (Q2).

    Attributes:
        visibility_timeout_s: how long a claim lasts without a heartbeat, in seconds, at least 1.
        max_attempts: how often a job is handed out before it is dead, at least 1.
        backoff_base_s: the base of the retry delay, in seconds, at least 0.
        dead_letter_retention_s: how long a dead job is kept before a sweep deletes it, in seconds, at least 0; None
            keeps it for ever.

    Raises:
        TypeError: an option is not an int.
        ValueError: an option is out of its range (V6).
    """

    visibility_timeout_s: int = 300
    max_attempts: int = 3
    backoff_base_s: int = 5
    dead_letter_retention_s: int | None = None

    def __post_init__(self) -> None:
        at_least(1, "visibility_timeout_s", self.visibility_timeout_s)
        at_least(1, "max_attempts", self.max_attempts)
        at_least(0, "backoff_base_s", self.backoff_base_s)
        if self.dead_letter_retention_s is not None:
            at_least(0, "dead_letter_retention_s", self.dead_letter_retention_s)


DEFAULT_QUEUE_OPTIONS = QueueOptions()
OUTBOX_QUEUE_OPTIONS = QueueOptions(visibility_timeout_s=60, max_attempts=5, backoff_base_s=5)


@dataclass(frozen=True, slots=True)
class JobStamp:
    """Everything about a new job but its queue and payload: the queue's options and the enqueue's own, resolved.

    Attributes:
        delay, run_at: how the ready time is found, by `timing.ready_time` against the engine's clock.
        expires: seconds until the job expires, or None.
    """

    visibility_timeout_s: int
    max_attempts: int
    backoff_base_s: int
    dead_letter_retention_s: int | None
    priority: int = 0
    delay: int | None = None
    run_at: int | None = None
    expires: int | None = None


def job_stamp(
    queue: QueueOptions,
    *,
    delay: int | None = None,
    run_at: int | None = None,
    expires: int | None = None,
    max_attempts: int | None = None,
    priority: int = 0,
) -> JobStamp:
    """Resolve one enqueue's options over its queue's.

    Raises:
        TypeError: an option is not an int.
        ValueError: an option is outside int64, or `max_attempts` below 1.
    """
    return JobStamp(
        queue.visibility_timeout_s,
        queue.max_attempts if max_attempts is None else at_least(1, "max_attempts", max_attempts),
        queue.backoff_base_s,
        queue.dead_letter_retention_s,
        int64("priority", priority),
        optional_int64("delay", delay),
        optional_int64("run_at", run_at),
        optional_int64("expires", expires),
    )


DEFAULT_STAMP = job_stamp(DEFAULT_QUEUE_OPTIONS)


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """What a schedule stamps on the jobs it enqueues, over the queue defaults (H1, Q2).

    Attributes:
        priority: as for an enqueue.
        max_attempts: at least 1, or None for the default.
        expires: seconds from the fire until the job expires, or None.
    """

    priority: int = 0
    max_attempts: int | None = None
    expires: int | None = None

    def __post_init__(self) -> None:
        job_stamp(DEFAULT_QUEUE_OPTIONS, priority=self.priority, max_attempts=self.max_attempts, expires=self.expires)

    def stamp(self, boundary: int) -> JobStamp:
        """The stamp of the job that fires at `boundary`, a unix second."""
        return job_stamp(
            DEFAULT_QUEUE_OPTIONS,
            priority=self.priority,
            max_attempts=self.max_attempts,
            expires=self.expires,
            run_at=boundary,
        )
