"""``python -m alkstore_sqlite upgrade-deliveries FILE``: take over a database of the older design."""

import argparse
import sys
from itertools import chain, count
from pathlib import Path

from alkstore_core.errors import AlkstoreError

from alkstore_sqlite.upgrade import NEW_VERSION, OLD_VERSION, upgrade_deliveries

_ABOUT = f"""Take over a database in which deliveries had a status: from version {OLD_VERSION} to {NEW_VERSION}.

It is one-way: a program that reads deliveries.status cannot use the file afterwards, and only a backup leads back. None
is taken without --backup. A fault anywhere leaves version {OLD_VERSION} as it was; run again, it goes on from there."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command; its exit code: 0 done or nothing to do, 1 not possible."""
    parser = argparse.ArgumentParser(prog="python -m alkstore_sqlite")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "upgrade-deliveries",
        help="take over a database of the older design",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("file", metavar="FILE", type=Path, help="the database")
    command.add_argument(
        "--backup",
        action="store_true",
        help=f"copy it first, to FILE.{OLD_VERSION}: to roll back, close all programs and put that in its place",
    )
    chosen = parser.parse_args(arguments)
    backup = _free(chosen.file) if chosen.backup else None
    _say(
        f"{chosen.file}: this is one-way; " + ("no backup is taken" if backup is None else f"a backup goes to {backup}")
    )
    try:
        upgraded = upgrade_deliveries(chosen.file, backup=backup, progress=_show)
    except AlkstoreError as error:
        _say(str(error))
        return 1
    if upgraded:
        _say(f"{chosen.file} is at version {NEW_VERSION}; the space of its old tables is free for new rows")
    else:
        _say(f"{chosen.file} is at version {NEW_VERSION} already: nothing was changed")
    return 0


def _free(file: Path) -> Path:
    """Where the backup goes: what an earlier run has left is never overwritten."""
    names = (f"{file.name}.{OLD_VERSION}{suffix}" for suffix in chain([""], (f".{number}" for number in count(1))))
    return next(path for path in map(file.with_name, names) if not path.exists())


def _show(what: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{what}: {done} of {total}" + ("\n" if done == total else ""))
        sys.stderr.flush()
    elif done in (0, total) or done % 100_000 == 0:
        _say(f"{what}: {done} of {total}")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
