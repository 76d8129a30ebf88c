"""`make bench-web`: 200 open pages with live updates on one core, beside a worker on the same core.

The server and the worker share one core; the pages and this program use another. A page is a stream of server-sent
events, and on each `changed` it fetches itself again, as a browser does. Answers are sent through the page, one at a
time, with no page open and with all of them, in alternating rounds. Two latencies are taken: until the page confirms
the answer, and until the worker has executed the run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any, Final
from urllib.parse import urlencode, urljoin

import httpx
from tests.web.browser.form_parser import forms_in
from tests.web.browser.large_seed import seed_gates
from tests.web.browser.seed import app_on, seed

from bench import web_paint
from bench.documents import filled
from bench.results import Spread

USERS: Final = 20
ANSWERS: Final = 30
APART_S: Final = 0.5
"""The time between two answers, the same in both kinds of round: an idle worker polls less often."""
_VIEWS: Final = (
    ("/", 80),
    ("/runs", 60),
    ("/runs/refund-4700", 20),
    ("/runs/payroll-11", 20),
    ("/runs/agent-long", 20),
)
"""The views, and how many pages show each: 200 together."""


@dataclass
class Round:
    """What a round gave, in milliseconds."""

    confirmed: list[float] = field(default_factory=list)
    executed: list[float] = field(default_factory=list)
    core: float = 0.0
    """The part of a core that the server used."""

    def at(self, name: str, part: int) -> float:
        values: list[float] = getattr(self, name)
        return quantiles(values, n=100, method="inclusive")[part - 1]


class Crowd:
    """Open pages. Each follows its stream and fetches itself again when it has changed."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._tasks: list[asyncio.Task[None]] = []
        self.connected = self.fetched = 0

    async def open(self) -> None:
        for path, count in _VIEWS:
            for number in range(count):
                self._tasks.append(asyncio.create_task(self._follow(path, f"user-{number % USERS}")))
        while self.connected < len(self._tasks):
            await asyncio.sleep(0.05)
            for task in self._tasks:
                if task.done():
                    task.result()

    async def _follow(self, path: str, who: str) -> None:
        headers = {"cookie": f"who={who}"}
        text = (await self._client.get(path, headers=headers)).text
        stream = text.partition('hx-sse:connect="')[2].partition('"')[0].replace("&amp;", "&")
        async with self._client.stream("GET", stream, headers=headers) as events:
            events.raise_for_status()
            self.connected += 1
            async for line in events.aiter_lines():
                if line == "event: changed":
                    (await self._client.get(path, headers=headers)).raise_for_status()
                    self.fetched += 1

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Bench:
    """A seeded store, the page and a worker on it."""

    def __init__(self, folder: str, answers: int) -> None:
        self.url = f"sqlite:{Path(folder) / 'runs.db'}"
        seed(self.url)
        seed_gates(self.url, answers + 1)
        self._left = iter(range(answers + 1))
        self._app = app_on(self.url)
        core = str(min(os.sched_getaffinity(0)))
        command = [sys.executable, "-m", "bench.web_server"]
        self._page = subprocess.Popen([*command, "page", self.url, core], stdout=subprocess.PIPE, text=True)
        self._worker = subprocess.Popen([*command, "worker", self.url, core])
        assert self._page.stdout is not None
        self.origin = f"http://127.0.0.1:{int(self._page.stdout.readline())}"

    def close(self) -> None:
        for process in (self._page, self._worker):
            process.terminate()
        for process in (self._page, self._worker):
            process.wait(60)
        self._app.close()

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        async with httpx.AsyncClient(base_url=self.origin, timeout=240, limits=limits) as client:
            yield client

    async def answer(self, client: httpx.AsyncClient, found: Round) -> None:
        """Answer a gate through the page, and wait until the worker has executed the run."""
        run_id = f"many-{next(self._left)}"
        path = f"/runs/{run_id}/gates/ask%231"
        text = (await client.get(path)).text
        form = next(one for one in forms_in(text) if one.method == "post" and "answer" in one.action)
        name = next(name for name in form.radios if "approve" in name)
        yes = next(value for value in form.radios[name] if value.lower() not in ("no", "false", ""))
        body = urlencode({**form.fields, name: [yes]}, doseq=True)
        headers = {"content-type": "application/x-www-form-urlencoded", "origin": self.origin}
        began = time.perf_counter()
        response = await client.post(urljoin(path, form.action), content=body, headers=headers)
        assert response.status_code == 303, response.text[:500]
        found.confirmed.append((time.perf_counter() - began) * 1000)
        while (await asyncio.to_thread(self._app.handle(run_id).status)) != "completed":
            await asyncio.sleep(0.005)
        found.executed.append((time.perf_counter() - began) * 1000)

    async def play(self, *, loaded: bool, answers: int) -> tuple[Round, dict[str, Any]]:
        """One round: some answers, with no page or with all pages open."""
        found = Round()
        async with self.client() as client:
            crowd = Crowd(client)
            if loaded:
                await crowd.open()
            facts = (await client.get("/bench")).json()
            began = time.perf_counter()
            for _ in range(answers):
                await self.answer(client, found)
                await asyncio.sleep(APART_S)
            after = (await client.get("/bench")).json()
            found.core = (after["cpu_s"] - facts["cpu_s"]) / (time.perf_counter() - began)
            facts["fetched"] = crowd.fetched
            await crowd.close()
        return found, facts


def shown(values: list[float]) -> str:
    """A median with its range."""
    spread = Spread.of(values)
    return f"{spread.median:.1f} [{spread.least:.1f}..{spread.greatest:.1f}]"


def load_table(bare: list[Round], loaded: list[Round]) -> str:
    """The latencies without and with open pages, and how they compare round by round."""
    lines = ["| answer through the page, ms | no page open | 200 pages open | times |", "|---|---|---|---|"]
    for title, name in (("confirmed", "confirmed"), ("executed by the worker", "executed")):
        for part in (50, 95):
            one, two = [found.at(name, part) for found in bare], [found.at(name, part) for found in loaded]
            times = [second / first for first, second in zip(one, two, strict=True)]
            lines.append(f"| {title}, p{part} | {shown(one)} | {shown(two)} | {shown(times)} |")
    lines.append(f"| part of a core | {shown([r.core for r in bare])} | {shown([r.core for r in loaded])} | |")
    return "\n".join(lines)


def paint_table(found: list[web_paint.Painted]) -> str:
    """First paints of small and large pages."""
    lines = ["| first paint, ms | small | 10,000 | times | KB of HTML |", "|---|---|---|---|---|"]
    for page in found:
        sizes = f"{page.small_bytes / 1000:.0f} / {page.large_bytes / 1000:.0f}"
        times = f"{page.times.median:.2f} [{page.times.least:.2f}..{page.times.greatest:.2f}]"
        lines.append(f"| {page.name} | {shown(page.small)} | {shown(page.large)} | {times} | {sizes} |")
    return "\n".join(lines)


async def load(rounds: int, answers: int) -> tuple[str, str]:
    """Play all rounds; the table, and what was counted."""
    bare: list[Round] = []
    crowded: list[Round] = []
    with tempfile.TemporaryDirectory() as folder:
        bench = await asyncio.to_thread(Bench, folder, (rounds * 2 + 2) * answers)
        os.sched_setaffinity(0, os.sched_getaffinity(0) - {min(os.sched_getaffinity(0))} or os.sched_getaffinity(0))
        try:
            await bench.play(loaded=False, answers=answers)  # until everything is imported and compiled
            facts: dict[str, Any] = {}
            for number in range(rounds):
                bare.append((await bench.play(loaded=False, answers=answers))[0])
                found, facts = await bench.play(loaded=True, answers=answers)
                crowded.append(found)
                print(f"round {number + 1} of {rounds}: {facts}", file=sys.stderr, flush=True)
        finally:
            await asyncio.to_thread(bench.close)
    said = f"{facts['readers']} streams, {facts['watched']} watched views, {facts['fetched']} pages fetched per round"
    return load_table(bare, crowded), said


def main() -> None:
    """Measure, print, and with --docs write into the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--answers", type=int, default=ANSWERS)
    parser.add_argument("--only", choices=("load", "paint"))
    parser.add_argument("--docs", type=Path)
    given = parser.parse_args()
    texts: dict[str, str] = {}
    if given.only != "paint":
        table, said = asyncio.run(load(given.rounds, given.answers))
        texts["web_load"] = f"{table}\n\n{given.rounds} rounds of {given.answers} answers; {said}."
    if given.only != "load":
        texts["web_paint"] = f"{paint_table(web_paint.measure(given.rounds))}\n\n{given.rounds} rounds."
    for text in texts.values():
        print(f"{text}\n")
    if given.docs is not None:
        given.docs.write_text(filled(given.docs.read_text("utf-8"), texts), "utf-8")


if __name__ == "__main__":
    main()
