"""The verdict: what counts as lost, and which duplicates are explained by a kill."""

from webhooks_demo.verdict import Arrival, Verdict, fingerprint, judge

SENT = {1: fingerprint("one"), 2: fingerprint("two")}


def arrival(line, at, worker="a", slot=0, body=None):
    return Arrival(line, worker, slot, at, SENT[line] if body is None else fingerprint(body))


def test_everything_once_is_good():
    """Each webhook arrived once: nothing lost, nothing twice."""
    verdict = judge(SENT, [arrival(1, 0.1), arrival(2, 0.2)], {})
    assert verdict == Verdict(delivered=2, duplicates=0, lost=(), damaged=(), unexplained=())
    assert verdict.good


def test_what_never_arrived_is_lost():
    """A webhook that no arrival has is lost, and the run is not good."""
    verdict = judge(SENT, [arrival(2, 0.2)], {})
    assert verdict == Verdict(delivered=1, duplicates=0, lost=(1,), damaged=(), unexplained=())
    assert not verdict.good


def test_a_delivery_under_way_when_its_worker_was_killed_may_come_again():
    """The last arrival from a killed worker's slot, come again after the kill, is a duplicate and explained."""
    arrivals = [arrival(1, 0.1), arrival(2, 0.2), arrival(2, 5.2, worker="b")]
    verdict = judge(SENT, arrivals, {"a": 0.3})
    assert verdict == Verdict(delivered=2, duplicates=1, lost=(), damaged=(), unexplained=())
    assert verdict.good


def test_each_slot_of_a_killed_worker_may_have_one_under_way():
    """Two slots, one kill: both deliveries may come again."""
    arrivals = [
        arrival(1, 0.1, slot=0),
        arrival(2, 0.2, slot=1),
        arrival(2, 5.2, worker="b"),
        arrival(1, 5.3, worker="b"),
    ]
    assert judge(SENT, arrivals, {"a": 0.3}) == Verdict(2, 2, (), (), ())


def test_a_delivery_killed_twice_may_come_three_times():
    """Every arrival but the last needs a kill of its own."""
    arrivals = [arrival(1, 0.1), arrival(2, 0.1, worker="x"), arrival(1, 5.2, worker="b"), arrival(1, 9.9, worker="c")]
    assert judge(SENT, arrivals, {"a": 0.3, "b": 5.3}) == Verdict(2, 2, (), (), ())
    assert judge(SENT, arrivals, {"a": 0.3}) == Verdict(2, 2, (), (), (1,))


def test_a_duplicate_without_a_kill_is_not_explained():
    """Nobody was killed, so nothing may come twice."""
    verdict = judge(SENT, [arrival(1, 0.1), arrival(2, 0.2), arrival(2, 0.3)], {})
    assert verdict == Verdict(delivered=2, duplicates=1, lost=(), damaged=(), unexplained=(2,))
    assert not verdict.good


def test_what_was_acknowledged_before_the_kill_may_not_come_again():
    """Its slot had gone on to the next delivery, so the acknowledgement of this one had landed."""
    arrivals = [arrival(1, 0.1), arrival(2, 0.2), arrival(1, 5.2, worker="b")]
    assert judge(SENT, arrivals, {"a": 0.3}).unexplained == (1,)


def test_what_came_again_before_the_kill_is_not_explained_by_it():
    """Two workers had it at the same time, and one was killed only later."""
    arrivals = [arrival(1, 0.05, slot=1), arrival(2, 0.1), arrival(2, 0.2, worker="b")]
    assert judge(SENT, arrivals, {"a": 0.3}).unexplained == (2,)


def test_what_arrives_must_be_what_was_sent():
    """Another body, or a line that was never sent, is damage."""
    stray = Arrival(3, "a", 0, 0.3, fingerprint("three"))
    verdict = judge(SENT, [arrival(1, 0.1, body="ohne"), arrival(2, 0.2), stray], {})
    assert verdict == Verdict(delivered=2, duplicates=0, lost=(), damaged=(1, 3), unexplained=())
    assert not verdict.good
