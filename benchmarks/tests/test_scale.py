"""docs/scale.md says what was measured and simulated, and the simulation is right where arithmetic can tell."""

from pathlib import Path

import pytest
from benchmarks.outcome import Outcome, Record, Results
from benchmarks.scale import filled, growth, one_primary
from benchmarks.sharding import carried, loads, place_of, simulated, simulation

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"


def test_the_simulation_on_the_page_is_what_the_code_gives():
    """It is the same every time, and nobody edits it by hand."""
    assert simulation() in PAGE.read_text("utf-8")


def test_a_name_has_one_place_in_every_process():
    """By a hash that does not change with the process, within bounds, and using all of them."""
    assert place_of("customer 17", 4) == 2
    assert {place_of(f"customer {number}", 4) for number in range(100)} == {0, 1, 2, 3}


@pytest.mark.parametrize("databases", [1, 2, 8])
def test_one_queue_fills_one_database(databases):
    """However many there are, they carry what one carries."""
    assert carried(loads(1, 0.0), databases, 0) == 1.0


def test_very_many_equal_queues_fill_all_alike():
    """Then arithmetic is enough: so many databases carry so many times as much, less a little."""
    median, least = simulated(20_000, 0.0, 4, namings=5)
    assert 3.8 < least <= median <= 4.0


def test_the_busiest_queue_bounds_what_is_carried():
    """No naming carries more than all the load divided by the busiest queue's share."""
    shares = loads(10, 1.0)
    assert max(carried(shares, 8, naming) for naming in range(100)) <= 1 / shares[0] + 1e-9


def test_loads_are_shares_of_the_whole():
    """They add up, the busiest first; without skew all are alike, and at 1 the tenth has a tenth of the first."""
    assert loads(4, 0.0) == [0.25] * 4
    assert sum(loads(100, 1.0)) == pytest.approx(1)
    assert loads(100, 1.0)[9] == pytest.approx(loads(100, 1.0)[0] / 10)


def measured(path):
    """Results of one primary."""
    results = Results(path / "full.jsonl")
    results.add([Record("drain", "alkstore-pg", 0, Outcome([{"rate": 20000.0}]))])
    half = {"p50_ms": 1.5, "p99_ms": 9.0, "offered": 4000.0}
    results.add([Record("latency-half-load-processes", "alkstore-pg", 0, Outcome([half]))])
    for at, ms in ((1000, 1.0), (10_000_000, 1.5)):
        results.add_growth([{"engine": "alkstore-pg", "axis": "live", "at": at, "operation": "enqueue", "ms": ms}])
    return results


def test_side_by_side_is_twice_the_half_load(tmp_path):
    """What was offered was half of what both did together just before."""
    assert "side by side, two processes | 8,000/s" in one_primary(measured(tmp_path))


def test_growth_is_shown_by_size(tmp_path):
    """One column for each size."""
    assert growth(measured(tmp_path)) == (
        "| with so many jobs waiting | 1,000 | 10,000,000 |\n| --- | --- | --- |\n| enqueue | 1.00 ms | 1.50 ms |\n"
    )


def test_tables_are_replaced_where_they_are_marked(tmp_path):
    """Twice is as once, the text around them stays, and every table of the page is known."""
    page = PAGE.read_text("utf-8")
    once = filled(page, measured(tmp_path))
    assert filled(once, measured(tmp_path)) == once
    assert once.count("<!-- end -->") == page.count("<!-- end -->") == 3
    assert "20,000/s" in once
