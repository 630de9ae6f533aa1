"""The arithmetic of the benchmarks: medians, ratios, the best peer, targets, growth."""

import pytest
from benchmarks.catalogue import ALKSTORE, ROWS, SUBJECTS, Target, subjects_of
from benchmarks.figures import (
    Spread,
    best_peer,
    growth_factor,
    growth_kind,
    measured_rows,
    ratio,
    rounds,
    standing,
    verdict,
)
from benchmarks.latency import latencies
from benchmarks.outcome import Outcome, Record, Results, said
from benchmarks.workload import ACROSS, WORKLOADS


def results_of(path, workload="enqueue-1", figure="rate", **subjects):
    """Results with those values, one for each round, by subject."""
    results = Results(path / "figures.jsonl")
    for subject, values in subjects.items():
        name = subject.replace("_", "-")
        results.add(Record(workload, name, number, Outcome([{figure: value}])) for number, value in enumerate(values))
    return results


def test_a_spread_is_median_least_and_greatest():
    """The median is not moved by one bad round; without values there is no spread."""
    assert Spread.of([900.0, 1000.0, 10.0]) == Spread(900.0, 10.0, 1000.0)
    assert Spread.of([]) is None


def test_a_ratio_is_the_median_of_the_rounds_ratios(tmp_path):
    """Each round is divided by the same round of the other, whatever the machine did between the rounds."""
    results = results_of(tmp_path, alkstore_sqlite=[50.0, 500.0, 120.0], sqlite3=[100.0, 1000.0, 200.0])
    assert ratio(results, "enqueue-1", "alkstore-sqlite", "sqlite3", "rate") == Spread(0.5, 0.5, 0.6)


def test_a_ratio_to_what_was_not_measured_is_none(tmp_path):
    """A floor that failed gives no ratio, and no false one."""
    results = results_of(tmp_path, alkstore_sqlite=[50.0])
    results.add([Record("enqueue-1", "sqlite3", 0, Outcome(failure="it broke"))])
    assert ratio(results, "enqueue-1", "alkstore-sqlite", "sqlite3", "rate") is None


def test_repetitions_within_a_process_count_as_rounds(tmp_path):
    """An outcome may hold several figures."""
    results = Results(tmp_path / "figures.jsonl")
    results.add([Record("replay", "sqlite3", 0, Outcome([{"rate": 1.0}, {"rate": 2.0}, {"rate": 3.0}]))])
    assert rounds(results, "replay", "sqlite3", "rate") == [1.0, 2.0, 3.0]


def test_the_best_peer_is_the_best_of_those_as_durable(tmp_path):
    """Greatest for rates, least for latencies; floors, other databases and weaker durability do not count."""
    rates = results_of(
        tmp_path,
        huey=[10.0],
        litequeue=[30.0],
        sqlite3=[99.0],
        honker=[99.0],
        alkstore_sqlite_normal=[99.0],
        saq=[99.0],
    )
    assert best_peer(rates, "enqueue-1", "sqlite", "rate") == "litequeue"
    waits = results_of(tmp_path / "waits", "latency-idle", "p50_ms", huey=[60.0], litequeue=[5.0], honker=[1.0])
    assert best_peer(waits, "latency-idle", "sqlite", "p50_ms") == "litequeue"
    assert best_peer(waits, "drain", "sqlite", "rate") is None


@pytest.mark.parametrize(
    ("times", "figure", "expected"),
    [
        (2.0, "rate", "ahead"),
        (0.5, "rate", "behind"),
        (1.05, "rate", "level"),
        (0.95, "p50_ms", "level"),
        (0.5, "p50_ms", "ahead"),
        (2.0, "p99_ms", "behind"),
    ],
)
def test_to_be_ahead_is_a_greater_rate_or_a_shorter_wait(times, figure, expected):
    """Within a tenth it is level."""
    assert standing(times, figure) == expected


@pytest.mark.parametrize(
    ("target", "met"),
    [
        (Target("sqlite", "rate", 100.0), True),
        (Target("sqlite", "rate", 101.0), False),
        (Target("sqlite", "rate", 0.5, of="sqlite3"), True),
        (Target("sqlite", "rate", 0.51, of="sqlite3"), False),
    ],
)
def test_a_target_is_met_from_its_limit_on(tmp_path, target, met):
    """As a rate, or as a multiple of another subject's."""
    results = results_of(tmp_path, alkstore_sqlite=[100.0], sqlite3=[200.0])
    assert verdict(results, "enqueue-1", target).met is met


def test_a_target_for_a_latency_is_met_up_to_its_limit(tmp_path):
    """And one that was not measured has no verdict."""
    results = results_of(tmp_path, "latency-idle", "p50_ms", alkstore_pg=[2.0])
    assert verdict(results, "latency-idle", Target("postgres", "p50_ms", 2.0)).met
    assert not verdict(results, "latency-idle", Target("postgres", "p50_ms", 1.9)).met
    assert verdict(results, "latency-idle", Target("sqlite", "p50_ms", 1.0)) is None


@pytest.mark.parametrize(
    ("points", "kind"),
    [
        ([(1_000, 1.0), (1_000_000, 1.9)], "flat"),
        ([(1_000_000, 1.9), (1_000, 1.0)], "flat"),
        ([(1_000, 1.0), (1_000_000, 3.9)], "logarithmic"),
        ([(1_000, 1.0), (1_000_000, 4.1)], "grows"),
        ([(1, 1.0), (200, 200.0)], "grows"),
        ([(1, 1.0)], "flat"),
        ([], "flat"),
    ],
)
def test_growth_is_told_from_the_fewest_to_the_most(points, kind):
    """Flat below twofold, logarithmic up to once more for each tenfold, else it grows."""
    assert growth_kind(points) == kind


def test_a_growth_factor_is_the_last_by_the_first():
    """In order of how many, whatever the order they come in."""
    assert growth_factor([(100, 3.0), (1, 1.5), (10, 9.0)]) == 2.0


def test_latencies_are_milliseconds():
    """Of seconds, with the nearest-rank percentile."""
    assert latencies([number / 1000 for number in range(1, 101)]) == {"p50_ms": 50.5, "p99_ms": 100.0}


def test_results_are_read_back_as_they_were_kept(tmp_path):
    """What a run knew and measured, failures and growth included, so that an interrupted one goes on."""
    results = results_of(tmp_path, sqlite3=[1.0, 2.0])
    results.add([Record("drain", "huey", 0, Outcome(failure="it broke", settings="as it comes"))])
    results.add_growth([{"engine": "alkstore-mem", "axis": "live", "at": 1000, "operation": "enqueue", "ms": 0.1}])
    results.tell({"day": "today", "missing": {"honker": "no wheel"}})
    assert Results.read(results.path) == results
    assert Results.read(tmp_path / "nothing.jsonl").records == []


def test_what_a_program_said_names_no_path_and_no_address():
    """The figures are published; the machine's folders are nobody's business."""
    assert said("no such file:\n /home/me/app.db at https://me:secret@host/x") == "no such file: … at …"
    assert len(said("word " * 1000)) < 250


def test_the_catalogue_is_whole():
    """Every workload has its row, its floors are floors of that family, and its subjects exist."""
    assert list(ROWS) == list(WORKLOADS)
    assert set(WORKLOADS) >= ACROSS
    for workload, row in ROWS.items():
        assert {SUBJECTS[floor].role for floor in row.floors.values()} <= {"floor"}
        assert all(SUBJECTS[floor].family == family for family, floor in row.floors.items())
        assert {*row.floors.values(), *row.beside, *ALKSTORE.values()} <= set(subjects_of(workload)) <= set(SUBJECTS)
        assert {target.of for target in row.targets} - {""} <= set(subjects_of(workload))
        assert {target.figure for target in row.targets} <= set(row.figures)


def test_rows_are_those_under_which_alkstore_was_measured(tmp_path):
    """A table has no empty lines."""
    assert measured_rows(results_of(tmp_path, alkstore_sqlite=[1.0], asyncpg=[1.0]), "sqlite") == ["enqueue-1"]
    assert measured_rows(results_of(tmp_path / "other", asyncpg=[1.0]), "postgres") == []
