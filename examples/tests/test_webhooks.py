"""The example, run as a user runs it: as a command, judged by what it prints and how it exits."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1]
SAMPLE = EXAMPLES / "webhooks.sample.jsonl"
LINES = len(SAMPLE.read_bytes().splitlines())
COLUMNS = ["received", "stored", "published", "delivered", "duplicates", "lost", "seconds", "rate"]


def command(*arguments, program=(str(EXAMPLES / "webhooks.py"),), **environment):
    """Run the example to its end."""
    return subprocess.run(
        [sys.executable, *program, *arguments],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "120", "PYTHONWARNINGS": "error", "PYTHONIOENCODING": "utf-8", **environment},
    )


def table(result):
    """The totals that a run printed, without the time it took."""
    lines = result.stdout.splitlines()
    heads = [number for number, line in enumerate(lines) if line.split() == COLUMNS]
    assert len(heads) == 1, result.stdout + result.stderr
    values = dict(zip(COLUMNS, lines[heads[0] + 2].split(), strict=True))
    assert float(values.pop("seconds")) > 0
    assert re.fullmatch(r"\d+/s", values.pop("rate"))
    return {name: int(value) for name, value in values.items()}


def all_good(lines, duplicates=0):
    return dict.fromkeys(COLUMNS[:4], lines) | {"duplicates": duplicates, "lost": 0}


def url_of(engine, request):
    if engine == "postgres":
        return request.getfixturevalue("dsn")
    return "mem:" if engine == "mem" else f"sqlite:///{request.getfixturevalue('tmp_path')}/app.db"


@pytest.fixture(params=["mem", "sqlite", "postgres"])
def store(request):
    return url_of(request.param, request)


@pytest.fixture
def open_folder():
    """A temporary folder that a server's own user can reach into, and in which nothing may be left."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield folder
        assert list(Path(folder).iterdir()) == []


def test_everything_is_stored_published_and_delivered_once(store):
    """On every engine, the sample: every number is the number of lines, nothing twice, nothing lost."""
    result = command("--store", store)
    assert table(result) == all_good(LINES)
    assert "Good: nothing lost, nothing twice." in result.stdout
    assert (result.returncode, result.stderr) == (0, "")


def test_without_a_store_it_makes_one_and_leaves_nothing_behind(tmp_path):
    """A new SQLite file in the temporary folder, gone at the end."""
    result = command(TMPDIR=str(tmp_path))
    assert table(result) == all_good(LINES)
    assert (result.returncode, result.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_the_subscriber_counts_every_kind_of_event(store, tmp_path):
    """The counts that are printed are those of the input."""
    path = tmp_path / "two-kinds.jsonl"
    kinds = ["größer"] * 3 + ["ping"] * 2
    path.write_text("".join(f'{{"id": "1", "event": "{kind}", "payload": {{}}}}\n' for kind in kinds), "utf-8")
    result = command("--store", store, "--input", str(path))
    assert table(result) == all_good(5)
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row for row in rows if row[:1] in (["größer"], ["ping"])] == [["größer", "3"], ["ping", "2"]]


def test_a_database_can_be_used_again(tmp_path):
    """Runs are kept apart, so a second one in the same file counts only its own, and both are in the table."""
    store = f"sqlite:///{tmp_path}/app.db"
    assert [table(command("--store", store)) for _ in range(2)] == [all_good(LINES)] * 2
    with sqlite3.connect(tmp_path / "app.db") as database:
        runs = database.execute("SELECT count(*) FROM webhooks GROUP BY run").fetchall()
    database.close()
    assert runs == [(LINES,), (LINES,)]


def test_memory_says_that_it_cannot_be_shared():
    """The workers run in the one process, and the run says so; there is nothing to kill, and asking is refused."""
    assert command("--store", "mem:").stdout.startswith("mem: lives in one process, so the workers run inside this one")
    refused = command("--store", "mem:", "--crash")
    assert refused.returncode == 2
    assert "there is no worker process to kill" in refused.stderr


@pytest.mark.parametrize("engine", ["sqlite", "embedded-pg"])
def test_killed_workers_lose_nothing(tmp_path, open_folder, engine):
    """With workers killed again and again nothing is lost, and each duplicate is accounted for by a kill."""
    store = engine if engine == "embedded-pg" else f"sqlite:///{tmp_path}/app.db"
    result = command("--store", store, "--crash", TMPDIR=open_folder)
    totals = table(result)
    assert totals == all_good(LINES, totals["duplicates"])
    assert "Good: nothing lost although 8 workers were killed" in result.stdout
    assert (result.returncode, result.stderr) == (0, "")


def test_a_worker_ends_with_whoever_started_it(tmp_path):
    """Its input ends when its parent does, killed or not, and then it finishes and ends."""
    arguments = f"sqlite:///{tmp_path}/app.db", "deliveries", "http://127.0.0.1:9/", "0", "worker"
    worker = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "webhooks_worker.py"), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert worker.stdout.readline() == b"ready\n"
    assert worker.communicate(timeout=30) == (b"", None)
    assert worker.returncode == 0


def test_a_postgres_of_its_own_is_gone_afterwards(open_folder):
    """For those who have none: it is started for the run, and stopped and deleted after it."""
    result = command("--store", "embedded-pg", TMPDIR=open_folder)
    assert table(result) == all_good(LINES)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_postgres_of_its_own_is_gone_after_a_failure(open_folder):
    """A run that ends in an error takes it along."""
    result = faulty("ends", "--store", "embedded-pg", TMPDIR=open_folder)
    assert result.returncode == 1
    assert re.search(r"Error: worker-\d\.1 ended by itself with status 3", result.stderr)


def test_without_a_postgres_to_start_it_says_what_to_install():
    """The error names the option and the package; there is no traceback."""
    program = (
        f"import sys; sys.path.insert(0, {str(EXAMPLES)!r})\n"
        "import webhooks, alkstore_pg.servers as servers\n"
        "servers._WHEEL = 'no-such-wheel'\n"
        "webhooks.main()"
    )
    result = command("--store", "embedded-pg", program=("-c", program))
    assert result.returncode == 2
    assert "Invalid value for --store" in result.stderr
    assert "pip install no-such-wheel" in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("store", ["sqlite", "embedded-pg"])
def test_an_interrupt_ends_it_and_its_workers(tmp_path, open_folder, store):
    """Ctrl-C, which reaches all processes at once: no traceback, and nobody is left holding the pipes."""
    path = tmp_path / "input"
    os.mkfifo(path)
    url = store if store == "embedded-pg" else f"sqlite:///{tmp_path}/app.db"
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "webhooks.py"), "--store", url, "--input", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
        env={**os.environ, "TMPDIR": open_folder},
    )
    line = SAMPLE.read_text("utf-8").splitlines(keepends=True)[0]
    with path.open("w", encoding="utf-8") as checked:
        checked.write(line)
    with path.open("w", encoding="utf-8") as taken_in:  # it is opened again once the workers are at work
        taken_in.write(line)
        os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (1, "\nAborted!\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b'{"id": "1", "event": "ping", "payload": {}}\n{"id": \n', "line 2: Invalid JSON"),
        (b'{"id": "1", "event": "ping", "payload": {}}\n\xff\n', "line 2: not UTF-8"),
    ],
)
def test_bad_input_is_refused_before_anything_is_stored(tmp_path, content, message):
    """The error names the line; no database is made."""
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    result = command("--input", str(path), "--store", f"sqlite:///{tmp_path}/app.db")
    assert result.returncode == 2
    assert message in " ".join(result.stderr.split())
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_missing_file_is_refused(tmp_path):
    """The error names the file."""
    result = command("--input", str(tmp_path / "none.jsonl"))
    assert result.returncode == 2
    assert re.search(r"none\.jsonl' does not exist", result.stderr)


@pytest.mark.parametrize("url", ["nothing:", "app.db", "sqlite:///no/such/folder/app.db"])
def test_a_store_that_cannot_be_opened_is_refused(url):
    """The error names the option; there is no traceback."""
    result = command("--store", url)
    assert result.returncode == 2
    assert "Invalid value for --store" in result.stderr
    assert "Traceback" not in result.stderr


def faulty(fault, *arguments, **environment):
    """Run the example with workers that have a fault."""
    worker = Path(__file__).with_name("faulty_worker.py")
    program = (
        f"import sys; sys.path.insert(0, {str(EXAMPLES)!r})\n"
        "import webhooks, webhooks_demo.crew as crew\n"
        f"crew.SCRIPT = ({str(worker)!r}, {fault!r})\n"
        "webhooks.main()"
    )
    return command(*arguments, program=("-c", program), PYTHONPATH=str(EXAMPLES), **environment)


@pytest.mark.parametrize("arguments", [(), ("--crash",)], ids=["calm", "crash"])
def test_a_worker_that_loses_deliveries_is_found_out(arguments):
    """One delivery in seven is acknowledged unsent: the run counts them as lost, and fails."""
    result = faulty("loses", *arguments)
    totals = table(result)
    assert totals == all_good(LINES, totals["duplicates"]) | {"delivered": LINES - LINES // 7, "lost": LINES // 7}
    assert "NOT GOOD. lost, lines: 7, 14, 21" in result.stdout
    assert result.returncode == 1


def test_a_duplicate_without_a_kill_is_found_out():
    """One delivery in seven is sent again although nobody died: nothing is lost, and the run fails all the same."""
    result = faulty("forgets")
    assert table(result) == all_good(LINES, LINES // 7)
    assert "delivered again although no worker died" in " ".join(result.stdout.split())
    assert result.returncode == 1


def test_a_worker_that_ends_by_itself_is_an_error():
    """It is named, with its exit status, and nothing hangs."""
    result = faulty("ends")
    assert result.returncode == 1
    assert re.search(r"Error: worker-\d\.1 ended by itself with status 3", result.stderr)
