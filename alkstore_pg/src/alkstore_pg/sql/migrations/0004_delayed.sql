-- Version 4: what is not ready yet, and of another priority than the usual 0, stands apart from the claim order until it
-- is: a claim would have to look at each priority that has such rows only. Those of priority 0 stay where they are, behind
-- the ready ones of their priority, so that a million of them that become ready in one second are not moved first.
-- place 3: pending, of another priority than 0, and not ready the last time that a claim looked.

CREATE INDEX jobs_delayed ON {schema}.jobs (queue, ready_at) WHERE place = 3;

UPDATE {schema}.jobs SET place = 3
WHERE place = 1 AND state = 0 AND priority <> 0 AND ready_at > extract(epoch FROM now());
