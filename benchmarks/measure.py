"""``python -m benchmarks.measure``: one workload of one subject, in this process; its figures as JSON on stdout.

    measure SUBJECT WORKLOAD FOLDER DSN SCALE    measure; SCALE is the Scale as JSON
    measure SUBJECT work|follow|listen FOLDER DSN    receive until killed, and say what arrived when

Only the standard library is imported here, since peers run in environments that have nothing else.
"""

import asyncio
import json
import logging
import os
import sys
import time
import traceback
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from benchmarks.catalogue import SUBJECTS
from benchmarks.latency import Scale
from benchmarks.outcome import Outcome, said
from benchmarks.subject import NotOfferedError, Place, Subject
from benchmarks.workload import ACROSS, WORKLOADS


def subject_at(name: str, place: Place) -> Subject:
    """The subject called `name`, with its data at `place`."""
    module, _, kind = SUBJECTS[name].code.partition(":")
    made: Subject = getattr(import_module(f"benchmarks.subjects.{module}"), kind)(place)
    return made


async def measured(name: str, workload: str, place: Place, scale: Scale) -> Outcome:
    """What `workload` gives; a failure of any kind is an outcome too."""
    settings = ""
    try:
        subject = subject_at(name, place)
        if workload in ACROSS and subject.alone:
            raise NotOfferedError(subject.alone)
        settings = subject.settings()
        await subject.open()
        figures = await WORKLOADS[workload](subject, scale)
    except NotOfferedError as reason:
        return Outcome(not_offered=str(reason))
    except Exception as error:
        traceback.print_exc()
        return Outcome(failure=said(f"{type(error).__name__}: {error}"), settings=settings)
    return Outcome(figures=figures if isinstance(figures, list) else [figures], settings=settings)


async def receive(name: str, kind: str, place: Place) -> None:
    """Receive until killed."""

    def say(line: str) -> None:
        os.write(1, f"{line}\n".encode())

    subject = subject_at(name, place)
    await subject.open()
    await getattr(subject, kind)(lambda number: say(f"{number} {time.monotonic_ns()}"), lambda: say("ready"))


def main() -> None:
    """Do what the arguments say."""
    name, what, folder, dsn, *scale = sys.argv[1:]
    os.environ["BENCHMARK_SUBJECT"] = name
    logging.disable(logging.ERROR)  # a line a job is not what is measured
    place = Place(Path(folder), dsn)
    if not scale:
        asyncio.run(receive(name, what, place))

    async def run() -> None:
        outcome = await measured(name, what, place, Scale(**json.loads(scale[0])))
        sys.stdout.write(json.dumps(asdict(outcome)) + "\n")
        sys.stdout.flush()
        os._exit(0)  # some subjects leave workers and threads behind, which is their business and not measured

    asyncio.run(run())


if __name__ == "__main__":
    main()
