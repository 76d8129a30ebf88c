"""What the tests of schedules share: an app on a manual clock."""

from __future__ import annotations

import datetime as dt
from typing import Any

import holdfast
from holdfast import App, Run
from holdfast.testing import ManualClock

HOUR = 3600
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Planned:
    """An app on a manual clock with a workflow that notes its calls and may wait for an answer."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock(int(START.timestamp()) * 1_000_000)
        self.store = holdfast.open(url, clock=self.clock)
        self.calls: list[Any] = []
        self.app = self.new_app()

    def new_app(self) -> App:
        app = App(self.store)

        @app.workflow
        def job(run: Run, what: str) -> None:
            run.step(self.calls.append, (run.run_id.rpartition("/")[2], what))
            if what == "ask":
                run.ask("Go on?")
            if what == "fail":
                raise ValueError(what)

        return app

    def later(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.work()

    def work(self) -> None:
        self.app.worker().run(until_idle=True)

    def ticks(self) -> list[str]:
        return [tick for tick, _ in self.calls]

    def answer_all(self) -> None:
        for gate in self.app.gates():
            self.app.answer(gate.run_id, True)

    def close(self) -> None:
        self.app.close()
        self.store.close()


def hours(*numbers: int) -> list[str]:
    return [f"{(START + dt.timedelta(hours=number)).replace(tzinfo=None).isoformat()}Z" for number in numbers]
