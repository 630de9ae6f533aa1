"""StopToken: said once, heard by everybody, from wherever it is said."""

import asyncio
import signal
import threading

from alkstore_core import StopToken


async def test_cancel_ends_every_wait_before_and_after() -> None:
    """Those who wait already, and those who come later."""
    stop = StopToken()
    assert not stop.is_cancelled
    waits = [asyncio.create_task(stop.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(wait.done() for wait in waits)
    stop.cancel()
    stop.cancel()
    await asyncio.gather(*waits)
    await stop.wait()
    assert stop.is_cancelled


async def test_cancel_from_a_thread_is_never_missed() -> None:
    """Whether the thread comes before, while or after the wait begins; many rounds."""
    loop = asyncio.get_running_loop()
    for _ in range(300):
        stop = StopToken()
        barrier = threading.Barrier(2)

        def say(barrier: threading.Barrier = barrier, stop: StopToken = stop) -> None:
            barrier.wait()
            stop.cancel()

        thread = threading.Thread(target=say)
        thread.start()
        barrier.wait()
        await stop.wait()
        await loop.run_in_executor(None, thread.join)


async def test_cancel_from_a_signal_handler_wakes_an_idle_loop() -> None:
    """As a service does it that stops on a signal."""
    stop = StopToken()
    before = signal.signal(signal.SIGUSR1, lambda *_: stop.cancel())
    try:
        wait = asyncio.create_task(stop.wait())
        await asyncio.sleep(0)
        signal.raise_signal(signal.SIGUSR1)
        await wait
    finally:
        signal.signal(signal.SIGUSR1, before)


async def test_a_wait_that_is_cancelled_leaves_nothing() -> None:
    """A thousand timed-out waits hold no place on the token."""
    stop = StopToken()
    for _ in range(1000):
        wait = asyncio.create_task(stop.wait())
        await asyncio.sleep(0)
        wait.cancel()
        await asyncio.gather(wait, return_exceptions=True)
    assert not stop._waiters


def test_a_token_may_serve_several_loops_and_outlive_them() -> None:
    """One loop that ended while waiting keeps nobody else from hearing."""
    stop = StopToken()

    dead = asyncio.new_event_loop()
    waiting = dead.create_task(stop.wait())
    dead.run_until_complete(asyncio.sleep(0))
    dead.stop()
    dead.close()

    async def live() -> None:
        wait = asyncio.create_task(stop.wait())
        await asyncio.sleep(0)
        stop.cancel()
        await wait

    asyncio.run(live())
    assert not waiting.done()
    waiting._log_destroy_pending = False  # it is dropped on purpose
