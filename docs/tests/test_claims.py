"""What the pages say is so: links lead somewhere, legs and names exist, options and commands are those of the code."""

import inspect
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from alkstore_contract_suite.catalogue import LEGS, leg_path, locked_legs
from alkstore_core import Store, Stream, Transaction
from pages import ENGINES, MEMBERS, PAGES, PROJECT, ROOT, blocks, links, rows

README = (ROOT / "README.md").read_text("utf-8")
LEG = re.compile(r"`([a-z_]+/[a-z0-9_]+)`|\[([a-z_]+/[a-z0-9_]+)\]")
LINKED_LEG = re.compile(r"\[([a-z]+/[a-z0-9_]+)\]\(([^)\s]+)\)")
RULE = re.compile(r"\b[A-Z]\d{1,2}\b")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    """Every link within the repository names a file or folder that is there."""
    assert [target for target in links(page) if not (page.parent / target.partition("#")[0]).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_legs_exist_and_prove_what_their_row_says(page):
    """Every leg that is named is in legs.lock, and in a table it proves a rule that is named in the same row."""
    legs = locked_legs()
    faults = []
    for line in page.read_text("utf-8").splitlines():
        named = [match[1] or match[2] for match in LEG.finditer(line)]
        rules = set(RULE.findall(LEG.sub("", line)))
        faults += [f"{leg} does not exist" for leg in named if leg not in legs]
        if line.startswith("|"):
            faults += [
                f"{leg} proves none of {rules}" for leg in named if leg in legs and not rules & {*legs[leg].rules}
            ]
    assert faults == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_leg_is_where_its_link_leads(page):
    """Every link that reads as a leg's id leads to the file that holds this leg."""
    linked = [(id, (page.parent / target).resolve()) for id, target in LINKED_LEG.findall(page.read_text("utf-8"))]
    assert linked == [(id, Path(leg_path(id).partition("::")[0]).resolve()) for id, _ in linked]


def test_every_rule_that_is_named_is_proved_by_a_leg():
    """The guarantees name no rule that no leg proves."""
    proved = {rule for leg in locked_legs().values() for rule in leg.rules}
    named = {rule for page in PAGES for rule in RULE.findall(page.read_text("utf-8"))}
    assert named - proved == set()


def test_every_option_of_open_is_described_with_its_default():
    """Each engine's `open` has a table in deployment.md that lists exactly its options, with their defaults."""
    text = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    classes = {store.__name__: store for store in (entry.load() for entry in entry_points(group="alkstore.engines"))}
    described: dict[str, dict[str, str]] = {}
    for row in rows(text):
        if heading := re.fullmatch(r"option of `(\w+)\.open`", row[0]):
            table = described.setdefault(heading[1], {})
        elif described and re.fullmatch(r"`\w+`", row[0]):
            table[row[0].strip("`")] = row[1]
    for name, store in classes.items():
        options = {
            parameter.name: parameter.default
            for parameter in inspect.signature(store.open).parameters.values()
            if parameter.kind is not parameter.VAR_KEYWORD
        }
        assert list(described[name]) == list(options), name
        for option, default in options.items():
            shown = "required" if default is inspect.Parameter.empty else str(default).strip("'")
            assert default is None or shown in described[name][option], (name, option)
    assert described.keys() == classes.keys()


def test_the_table_of_names_names_what_exists():
    """For readers of the origin contract: every name on the right is a member here, and every name has its row."""
    table = README.partition("| there | here |")[2]
    here = re.findall(r"`(tx|store|stream)\.(\w+)", table)
    assert len(here) == 12
    holders = {"tx": Transaction, "store": Store, "stream": Stream}
    assert [name for holder, name in here if not hasattr(holders[holder], name)] == []


def test_ci_runs_what_the_readme_says():
    """The README's second command is the last line of .ci/run, and both begin alike."""
    demo, tests = (line for block in blocks("sh") for line in block.code.splitlines() if "nox -s" in line)
    assert (ROOT / ".ci" / "run").read_text("utf-8").splitlines()[-1] == tests
    assert demo.removesuffix("demo") == tests.removesuffix("tests")


@pytest.mark.parametrize("mechanism", ["queues", "streams", "notify", "locks", "scheduler", "mailboxes"])
def test_the_readme_shows_where_each_mechanism_is(mechanism):
    """Its row links to core's file, every engine's and all of the legs'."""
    (row,) = (line for line in README.splitlines() if line.startswith("|") and f"alkstore_core/{mechanism}.py" in line)
    for package in ("alkstore_core", *ENGINES):
        assert f"({package}/src/{package}/{mechanism}.py)" in row
    linked = [(ROOT / target).resolve() for target in re.findall(r"\(([^)\s]+/legs/[^)\s]+)\)", row)]
    assert sorted(linked) == sorted(LEGS.resolve().glob(f"test_{mechanism}*.py"))


def test_the_settings_cover_every_distribution():
    """Tests, types and import rules of every member of the workspace are looked at: none can be forgotten."""
    tools = PROJECT["tool"]
    assert {f"{folder.parent.name}/tests" for folder in ROOT.glob("*/tests")} == set(
        tools["pytest"]["ini_options"]["testpaths"]
    )
    assert {f"{member}/src" for member in MEMBERS} <= set(tools["pyright"]["include"])
    assert {member.replace("contract", "alkstore_contract") for member in MEMBERS} == set(
        tools["importlinter"]["root_packages"]
    )
    contracts = {contract["id"]: contract for contract in tools["importlinter"]["contracts"]}
    for contract, key in {
        "core": "forbidden_modules",
        "suite": "forbidden_modules",
        "engines": "modules",
        "run-time": "source_modules",
        "seam": "source_modules",
    }.items():
        assert set(ENGINES) <= set(contracts[contract][key]), contract
