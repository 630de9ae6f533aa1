"""Which names are allowed (V1 to V3), and texts that must be storable."""

from collections.abc import Callable
from enum import Enum, StrEnum

import pytest
from alkstore_core.errors import InvalidNameError, ReservedNameError
from alkstore_core.names import (
    RESERVED_PREFIX,
    error_text,
    event_key,
    failure_text,
    free_name,
    shared_name,
    storable_text,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.text(st.sampled_from("\0\ud800\udfff \t\u2003aé_"))
ANYTHING = ANY_TEXT | st.none() | st.integers() | st.binary() | st.lists(st.just("a")) | st.floats()


def is_storable(text: str) -> bool:
    """What every engine can store, said the long way round."""
    try:
        return "\0" not in text.encode().decode()
    except UnicodeEncodeError:
        return False


def expected(name: object, *, shared: bool) -> type[Exception] | None:
    """The error that the contract wants for `name`."""
    if not isinstance(name, str) or not name.strip() or not is_storable(name):
        return InvalidNameError
    return ReservedNameError if shared and name.startswith("__alkstore_") else None


def verdict(check: Callable[[str, object], object], name: object) -> type[Exception] | None:
    """The error that `check` raises, or None where it gives the name back as it is."""
    try:
        assert check("queue", name) == name
    except (InvalidNameError, ReservedNameError) as error:
        return type(error) if error.name is name or error.name == name else None
    return None


def property_of_shared_names(check: Callable[[str, object], object]) -> None:
    @settings(database=None, report_multiple_bugs=False)
    @given(ANYTHING | ANY_TEXT.map(RESERVED_PREFIX.__add__))
    @example(10**5000)
    @example("__alkstore_")
    @example(" __alkstore_x")
    @example("\u3000")
    def run(name: object) -> None:
        assert verdict(check, name) == expected(name, shared=True)

    run()


def test_a_shared_name_is_kept_as_it_is_or_refused_with_its_own_error() -> None:
    """Empty, blank, NUL, lone surrogate, no str: invalid. The prefix: reserved. All else: unchanged (V1, V3)."""
    property_of_shared_names(shared_name)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda kind, name: shared_name(kind, name).strip(), id="trims"),
        pytest.param(lambda kind, name: free_name(kind, name), id="allows-the-prefix"),
        pytest.param(
            lambda kind, name: storable_text(kind, name) if isinstance(name, str) else name, id="allows-blank"
        ),
        pytest.param(lambda kind, name: shared_name(kind, name).casefold(), id="folds"),
    ],
)
def test_the_property_of_shared_names_finds_a_wrong_check(wrong: Callable[[str, object], object]) -> None:
    """The negative control of the property above."""
    with pytest.raises((AssertionError, TypeError)):
        property_of_shared_names(wrong)


@given(ANYTHING | ANY_TEXT.map(RESERVED_PREFIX.__add__))
def test_a_free_name_may_have_the_reserved_prefix(name: object) -> None:
    """Consumers and workers are the caller's own, but for what nobody can store (V2, V3)."""
    assert verdict(free_name, name) == expected(name, shared=False)


@given(ANYTHING)
def test_an_event_key_is_none_or_a_storable_text_that_is_not_empty(key: object) -> None:
    """A key is carried and not interpreted, so a blank one is fine (S2)."""
    fine = key is None or (isinstance(key, str) and key != "" and is_storable(key))
    try:
        assert event_key(key) == key
    except InvalidNameError:
        assert not fine
    else:
        assert fine


class Plain(str, Enum):  # noqa: UP042 - a StrEnum shows itself otherwise
    EMAILS = "emails"


class Fancy(StrEnum):
    EMAILS = "emails"


@pytest.mark.parametrize("member", [Plain.EMAILS, Fancy.EMAILS])
def test_a_member_of_an_enum_names_what_its_value_says(member: str) -> None:
    """It becomes a plain str: formatted into another name, such a member would show as something else."""
    assert type(shared_name("queue", member)) is str
    assert f"{shared_name('queue', member)}" == "emails"
    assert type(event_key(member)) is str


def test_the_message_names_the_kind_the_value_and_the_remedy() -> None:
    """Every message says what was wrong, with the value, and what to do (E3)."""
    with pytest.raises(InvalidNameError, match=r"^queue name ' ' is empty or blank: give it a visible character$"):
        shared_name("queue", " ")
    with pytest.raises(InvalidNameError, match=r"^lock name 'a\\x00b' has a NUL at index 1: remove it$"):
        shared_name("lock", "a\0b")
    with pytest.raises(ReservedNameError, match=r"'__alkstore_x' starts with '__alkstore_'.*choose a name without"):
        shared_name("queue", "__alkstore_x")


@given(ANY_TEXT)
def test_error_text_is_storable_and_keeps_all_else(text: str) -> None:
    """One U+FFFD stands for each NUL and each lone surrogate, and nothing else is touched."""
    kept = error_text(text)
    assert is_storable(kept)
    assert len(kept) == len(text)
    assert all(new == old or (new == "\ufffd" and not is_storable(old)) for new, old in zip(kept, text, strict=True))


class WordlessError(Exception):
    """An error whose words fail."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad \0 order"), "bad \ufffd order"),
        (ValueError(), "ValueError()"),
        (TimeoutError(), "TimeoutError()"),
        (WordlessError(), "<WordlessError that has no repr>"),
    ],
)
def test_a_failure_always_has_a_text(error: Exception, text: str) -> None:
    """What a handler raises is stored, whatever it is (W1, W5)."""
    assert failure_text(error) == text
