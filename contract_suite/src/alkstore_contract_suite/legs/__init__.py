"""The legs: each is one property of the contract, as a test that any engine can be held against.

How to write one:

- A leg is a top-level ``async def test_…`` with ``@leg(rules="Q3 Q4", since="1.0")``. Its id is its mechanism and its
  name: ``queues/claim_order`` is ``test_claim_order`` in a file ``test_queues….py``. Choose well, it never changes.
- The first word of a file's name is the mechanism, in the contract's words; where one file would be too long, the rest
  says which part of it this one holds: ``test_queues_claiming.py``. A leg may move to another file of its mechanism; no
  two have the same id. What several files use is in a module named by a noun: `calls`, `jobs`.
- The docstring's first line is the property, as a sentence that is true of a right engine.
- Take fixtures (`conftest`): ``store`` (open, empty), ``second_store`` (another one on the same data), ``harness``
  (`harness.Harness`: `open`, `advance`, `write`/`read` of the business table, `native`), ``witness``, ``clock``,
  ``children``, and ``native_kind``, with which the leg runs once for each kind of connection that ``enlist`` takes.
  ``@pytest.mark.parametrize`` is welcome: all variants are one leg.
- Never sleep, and never wait for time: ``await harness.advance(seconds)``. Never wait for "nothing": prove it with a
  sentinel (`proofs`). A hang fails by itself (60 s), so no timeouts of your own, unless it is the point.
- While a transaction is open, an engine with one writer lets nobody else write (T11): the leg then writes on it only.
- Compare whole values. Know no engine: no name, no error text, no type of its connection. Use the public surface of
  core and the harness, nothing below. An optional hook (`needs.NEEDS`) is named: ``needs=("child",)``.
- Several processes: write the body in `child_bodies`, ``await children.start(body, arguments…)``, wait with
  ``await child.reached("claimed")``, then ``kill()`` or ``release("claimed")``; a fresh store and the witness judge.
- Each leg gets a mutant (`mutation`): a wrong engine that it must catch, in ``contract_suite/tests/mutants/``, one file
  per mechanism. One mutant may kill many legs. Say ``hangs=True`` where the leg fails by waiting for ever. Try it with
  ``pytest contract_suite/tests/test_mutants.py -k NAME``. Then freeze the id: ``alkstore-contract legs --update``.
"""
