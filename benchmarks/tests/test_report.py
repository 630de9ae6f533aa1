"""The page says what the results hold, and nothing else."""

import re
from pathlib import Path

from benchmarks.outcome import Outcome, Record, Results
from benchmarks.report import number, page, table
from benchmarks.scale import filled

ROOT = Path(__file__).parents[2]


def small_run(path):
    """Results of a small run: a peer that cannot be installed, one that fails, one that does not offer it."""
    results = Results(path / "full.jsonl")
    results.tell(
        {
            "machine": "a machine",
            "postgres": {"server_version": "18.1", "fsync": "on"},
            "versions": {"huey": "3.5 on Python 3.11"},
            "missing": {"honker": "no wheel for this platform"},
        }
    )
    rates = {
        "alkstore-sqlite": (900.0, 1000.0, 1100.0),
        "sqlite3": (1800.0, 2000.0, 2200.0),
        "huey": (500.0, 250.0, 550.0),
        "aiosqlite": (225.0, 250.0, 275.0),
    }
    for name, values in rates.items():
        results.add(
            Record("enqueue-1", name, number, Outcome([{"rate": value}], f"settings of {name}"))
            for number, value in enumerate(values)
        )
    results.add([Record("enqueue-1", "litequeue", 0, Outcome(failure="it broke"))])
    results.add([Record("enqueue-1", "persist-queue", 0, Outcome(not_offered="no such thing"))])
    results.add([Record("enqueue-1", "honker", 0, Outcome(failure="not installed: no wheel for this platform"))])
    results.add_growth(
        {"engine": "alkstore-mem", "axis": "live", "at": at, "operation": "enqueue", "ms": ms}
        for at, ms in ((1000, 0.5), (1_000_000, 5.0))
    )
    return results


def test_a_workload_is_shown_with_its_ratios_target_and_verdict(tmp_path):
    """Median and spread, the ratio to the floor and to the best peer, and what became of the target."""
    (line,) = [
        line for line in page(small_run(tmp_path)).splitlines() if line.startswith("| enqueue, 1 caller | 1,000/s")
    ]
    assert line == (
        "| enqueue, 1 caller | 1,000/s (900\N{EN DASH}1,100) | 0.50 "
        "| 2.00 of huey: ahead, but it blocks its caller's event loop; 4.00 of aiosqlite: ahead "
        "| ≥ 0.45 of sqlite3 | met: 0.50 |"
    )


def test_nobody_is_silently_absent(tmp_path):
    """Who could not be installed, who failed and who does not offer something is said, with the reason."""
    text = page(small_run(tmp_path)).partition("## Not measured")[2]
    assert text.strip().splitlines()[2:] == [
        "| honker | all of it | no wheel for this platform |",
        "| litequeue | enqueue, 1 caller | failed: it broke |",
        "| persist-queue | enqueue, 1 caller | not offered: no such thing |",
    ]


def test_growth_is_shown_with_its_kind(tmp_path):
    """From the fewest to the most, and how it grew."""
    text = page(small_run(tmp_path))
    assert "| live | alkstore-mem | 1,000 to 1,000,000 | 0.50 to 5.00 ms | grows, 10.0 times |" in text
    assert "(performance/growth-enqueue.svg)" in text


def test_settings_and_versions_are_shown(tmp_path):
    """How each was set up, as it said itself."""
    assert "| huey | 3.5 on Python 3.11 | settings of huey |" in page(small_run(tmp_path))


def test_the_page_of_no_results_has_no_numbers(tmp_path):
    """Its prose claims nothing that was not measured."""
    assert not any(letter.isdigit() for letter in page(Results(tmp_path / "none.jsonl")).partition("1 rounds")[0])


def test_cells_do_not_break_their_table():
    """A reason may hold a bar."""
    assert table(["a"], [["b|c"]]) == "| a |\n| --- |\n| b/c |\n"


def test_numbers_have_about_three_digits():
    """No false precision."""
    assert [number(value) for value in (12345.6, 99.94, 1.234)] == ["12,346", "99.9", "1.23"]


def test_the_pages_are_made_from_the_committed_figures():
    """docs/performance.md and the tables of docs/scale.md are what the last full run gives, and nobody edits them."""
    results = Results.read(ROOT / "benchmarks" / "results" / "full.jsonl")
    assert (ROOT / "docs" / "performance.md").read_text("utf-8") == page(results)
    scale = (ROOT / "docs" / "scale.md").read_text("utf-8")
    assert scale == filled(scale, results)


def test_every_plot_on_the_page_is_there():
    """And no other."""
    text = (ROOT / "docs" / "performance.md").read_text("utf-8")
    shown = set(re.findall(r"\(performance/([^)]+)\)", text))
    assert shown == {plot.name for plot in (ROOT / "docs" / "performance").glob("*.svg")}
