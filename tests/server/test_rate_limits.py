"""Rate limits of actors."""

from __future__ import annotations

import httpx

from omnigraph.server.http.rate_limits import RateLimiter
from tests.server.running import ALL, POLICY, TOKENS, error_body, host, running


def test_requests_beyond_the_rate_of_an_actor_are_refused_until_time_has_passed() -> None:
    now = [1_000.0]
    limiter = RateLimiter(0.5, 3, clock=lambda: now[0])

    def query(client: httpx.Client) -> httpx.Response:
        return client.post("/query", json={"query": ALL})

    with (
        running(host(POLICY, tokens=TOKENS), rate_limiter=limiter) as server,
        server.client("ann") as ann,
        server.client("bob") as bob,
    ):
        assert [query(ann).status_code for _ in range(3)] == [200, 200, 200]
        refused = query(ann)
        body = error_body(refused, 429)
        assert (body["code"], refused.headers["retry-after"]) == ("too_many_requests", "2")
        assert "rate limit of 0.5 per second" in body["error"]
        # Other actors and monitoring are not affected.
        assert query(bob).status_code == 200
        assert ann.get(f"{server.url}/metrics").status_code == 200
        assert ann.get(f"{server.url}/healthz").status_code == 200
        now[0] += 2
        assert query(ann).status_code == 200
        assert query(ann).status_code == 429


def test_idle_actor_may_send_one_burst_only() -> None:
    now = [0.0]
    limiter = RateLimiter(10, 5, clock=lambda: now[0])
    now[0] = 10_000.0
    assert [limiter.wait("ann") > 0 for _ in range(7)] == [False] * 5 + [True] * 2
