"""What the machine draws: few names, so that things collide, and numbers from around the edges."""

from dataclasses import dataclass

from alkstore_core.numbers import INT64_MAX, INT64_MIN
from hypothesis import strategies as st

START = 1_700_000_000
"""The unix second at which every run begins."""

QUEUES = ("a", "b")
STREAMS = ("s", "t")
CONSUMERS = ("c", "__alkstore_d")
OUTBOX = "o"
CHANNEL = "n"
MAILBOXES = ("m", "n")
LONGEST = 10**6
"""A limit above whatever is there."""


@dataclass(frozen=True, slots=True)
class Newest:
    """The thing given out `back` before the newest one."""

    back: int


back = st.sampled_from((0, 0, 0, 1, 1, 2, 3, 5))
"""How far back, in what was given out: mostly not far."""
newest = back.map(Newest)
stores = st.integers(0, 1)
queues = st.sampled_from((QUEUES[0], QUEUES[0], QUEUES[0], QUEUES[1]))
any_queues = st.sampled_from((QUEUES[0], QUEUES[0], QUEUES[0], QUEUES[1], OUTBOX))
streams = st.sampled_from(STREAMS)
mailboxes = st.sampled_from((MAILBOXES[0], MAILBOXES[0], MAILBOXES[0], MAILBOXES[1]))
consumers = st.sampled_from(CONSUMERS)
workers = st.sampled_from(("w", "w", "v", "__alkstore_u"))
keys = st.sampled_from((None, None, "k", " "))
payloads = st.sampled_from((None, 1, "", {"a": [1, {"b": None}]}, ["é\U0001f600"], 2**64 - 1, -(2**63), 1e308, True))
locks = st.sampled_from(("l", "m"))
schedules = st.sampled_from(("x", "x", "y"))
errors = st.sampled_from(("e", "", "nul \0 and surrogate \ud800"))

seconds = st.sampled_from((0, 1, 5, 10, 60, 300, 3600, -1, -10, INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX))
"""A distance from now: of either sign."""
lifetimes = st.sampled_from((5, 10, 5, 10, 5, 300, INT64_MAX, 1, 0, -1, INT64_MIN))
moments = st.sampled_from(
    (START, START - 10, START + 1, START + 10, START + 300, 0, -1, INT64_MIN, INT64_MAX - 1, INT64_MAX)
)
limits = st.sampled_from((1, 2, 1, 3, 2, 100, 100, INT64_MAX, 0, -1, INT64_MIN))
priorities = st.sampled_from((0, 1, -1, 5, INT64_MIN, INT64_MAX))
attempts = st.sampled_from((1, 2, 3, INT64_MAX))
ttls = st.sampled_from((1, 10, 15, 60, INT64_MAX, 0, -1))
unknown_ids = st.sampled_from((0, -1, INT64_MIN, INT64_MAX))
"""Ids that no engine gives out."""
places = st.one_of(newest, newest, st.sampled_from((INT64_MIN, -1, 0, INT64_MAX)))
"""Offsets: of an event, or below or above all events. Between two events an engine may have left a gap."""

steps = st.sampled_from((1, 5, 10, 300, 1, 5, 10, 300, 60, 3600, 86400, 0, -1, -7))
jumps = st.sampled_from((START, START, START + 100_000, 0, INT64_MIN, INT64_MIN + 5, INT64_MAX - 5, INT64_MAX))

enqueue_options = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"priority": priorities, "max_attempts": attempts}),
    st.fixed_dictionaries({"expires": lifetimes}),
    st.fixed_dictionaries(
        {},
        optional={
            "delay": seconds,
            "run_at": moments,
            "expires": lifetimes,
            "max_attempts": attempts,
            "priority": priorities,
        },
    ),
)
queue_options = st.sampled_from(
    (
        {},
        {"visibility_timeout_s": 5, "max_attempts": 2, "backoff_base_s": 0},
        {"visibility_timeout_s": 5, "max_attempts": 1, "dead_letter_retention_s": 10},
        {"visibility_timeout_s": 1, "max_attempts": 1},
        {"visibility_timeout_s": 10, "backoff_base_s": 2, "dead_letter_retention_s": 0},
        {"visibility_timeout_s": INT64_MAX, "max_attempts": INT64_MAX, "backoff_base_s": INT64_MAX},
        {"visibility_timeout_s": 1, "dead_letter_retention_s": INT64_MAX},
    )
)
specs = st.sampled_from(("@every 10s", "@every 10s", "@every 9s", "@every 1h", f"@every {INT64_MAX}s"))
schedule_options = st.one_of(
    st.just({}),
    st.fixed_dictionaries({}, optional={"priority": priorities, "max_attempts": attempts, "expires": lifetimes}),
)
