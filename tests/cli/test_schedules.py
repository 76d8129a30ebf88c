"""`holdfast schedules`."""

from __future__ import annotations

from pathlib import Path

from holdfast import App, Run
from tests.cli.processes import command as run


def test_schedules_are_listed(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'runs.db'}"
    with App(url) as app:

        @app.workflow
        def job(run: Run) -> None:
            run.ask("Go on?")

        app.schedule("nightly", job, cron="0 3 * * *", tz="Europe/Berlin")
        app.schedule("soon", job, every=3600)
        app.worker().run(until_idle=True)
    shown = run("schedules", "--store", url, cwd=tmp_path)
    assert shown.code == 0
    assert [line.split()[0] for line in shown.out.splitlines()] == ["NAME", "nightly", "soon"]
    assert "0 3 * * * (Europe/Berlin)" in shown.out
    found = run("schedules", "--json", "--store", url, cwd=tmp_path).data["schedules"]
    assert [(one["name"], one["workflow"], one["status"]) for one in found] == [
        ("nightly", "job", "waiting"),
        ("soon", "job", "waiting"),
    ]
    assert found[0]["next"] is not None


def test_no_schedules(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'runs.db'}"
    App(url).close()
    assert "no schedules" in run("schedules", "--store", url, cwd=tmp_path).err
