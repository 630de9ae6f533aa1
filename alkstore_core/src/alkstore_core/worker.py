"""A consumer loop over a queue's own operations (contract section 11)."""

from collections.abc import Awaitable, Callable

from alkstore_core.queues import JobHandle, Queue
from alkstore_core.stopping import StopToken

Handler = Callable[[JobHandle], Awaitable[object]]


class Worker:
    """To be written."""

    def __init__(
        self,
        queue: Queue,
        handler: Handler,
        *,
        concurrency: int = 10,
        worker_id: str | None = None,
        shutdown_timeout: float = 30.0,
    ) -> None:
        raise NotImplementedError

    async def run(self, stop: StopToken) -> None:
        raise NotImplementedError
