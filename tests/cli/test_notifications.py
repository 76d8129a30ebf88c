"""`holdfast notifications`, and the worker that announces."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from tests.cli.processes import command as run
from tests.cli.processes import environment
from tests.fork_server import COMMAND, start
from tests.harness import until
from tests.notifications.flows import register
from tests.notifications.receivers import Receiver

SECRET = "a secret of more than sixteen characters"
APP = """
import holdfast
from tests.notifications.flows import register

def make(url):
    return register(holdfast.App(url))
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as found:
        yield found


@pytest.fixture
def project(tmp_path: Path, receiver: Receiver) -> Path:
    (tmp_path / "mine.py").write_text(APP)
    (tmp_path / "pyproject.toml").write_text(
        f"""[tool.holdfast]
store = "sqlite:runs.db"
app = "mine.py:make"

[tool.holdfast.notifications]
base_url = "https://page.example"

[[tool.holdfast.notifications.targets]]
kind = "webhook"
name = "ops"
url = "{receiver.url}"
secret_env = "HOOK_SECRET"
"""
    )
    return tmp_path


def shop(project: Path) -> holdfast.App:
    return register(holdfast.App(f"sqlite:{project / 'runs.db'}"))


def test_a_test_message_shows_whether_a_target_can_be_reached(project: Path, receiver: Receiver) -> None:
    done = run("notifications", "test", "ops", cwd=project, HOOK_SECRET=SECRET)
    assert (done.code, done.out) == (0, "ops: delivered\n")
    assert receiver.requests[0].data["event"] == "test"
    assert not (project / "runs.db").exists()
    receiver.plan = [503]
    done = run("notifications", "test", "ops", "--json", cwd=project, HOOK_SECRET=SECRET)
    assert done.code == 1
    assert done.data == {"target": "ops", "delivered": False, "reason": "it responded with status 503"}
    done = run("notifications", "test", "oops", cwd=project, HOOK_SECRET=SECRET)
    assert done.code == 2
    assert "the targets are ops" in done.err


UNSET = "the environment variable HOOK_SECRET (secret_env) is not set"


def test_a_worker_without_the_secret_warns_and_leaves_the_notifications_to_another(
    project: Path, receiver: Receiver
) -> None:
    with shop(project) as app:
        app.start("asks", run_id="a", enqueue=True)
        done = run("worker", "--until-idle", cwd=project)
        assert done.code == 0, done.err
        assert done.err.count(UNSET) == 1
        assert app.handle("a").status() == "waiting", "it executed the run"
    done = run("notifications", "status", "--json", cwd=project)
    assert done.data["unavailable"] == [{"target": "ops", "reason": f"target 'ops': {UNSET}"}]
    assert UNSET in run("notifications", "status", cwd=project).err
    assert receiver.requests == []
    assert run("worker", "--until-idle", cwd=project, HOOK_SECRET=SECRET).code == 0
    assert [request.data["run_id"] for request in receiver.requests] == ["a"]


def test_a_mistake_in_the_table_is_an_error_of_a_worker(project: Path) -> None:
    settings = (project / "pyproject.toml").read_text()
    for wrong in ('secret_file = "also"\n', 'secrets_env = "x"\n'):
        (project / "pyproject.toml").write_text(settings + wrong)
        assert run("worker", "--until-idle", cwd=project).code == 2


def test_a_test_message_without_the_secret_or_the_table_is_wrong_usage(project: Path) -> None:
    done = run("notifications", "test", "ops", cwd=project)
    assert done.code == 2
    assert UNSET in done.err
    (project / "pyproject.toml").write_text("[tool.holdfast]\n")
    done = run("notifications", "test", "ops", cwd=project)
    assert done.code == 2
    assert "[tool.holdfast.notifications]" in done.err
    (project / "pyproject.toml").write_text("[tool.holdfast]\nnotifications = 3\n")
    assert run("notifications", "test", "ops", cwd=project).code == 2


def test_a_worker_until_idle_announces_what_it_left_waiting(project: Path, receiver: Receiver) -> None:
    with shop(project) as app:
        app.start("asks", run_id="a", enqueue=True)
    done = run("worker", "--until-idle", cwd=project, HOOK_SECRET=SECRET)
    assert done.code == 0, done.err
    assert [request.data["run_id"] for request in receiver.requests] == ["a"]


def test_a_worker_announces_while_it_works_and_stops_on_sigterm(project: Path, receiver: Receiver) -> None:
    with shop(project) as app:
        process = start(COMMAND, "worker", cwd=project, env=environment(HOOK_SECRET=SECRET))
        try:
            until(lambda: any(name.run_id.startswith("notify/since/") for name in app.runs()), "it announces")
            app.start("asks", run_id="a", enqueue=True)
            app.start("fails", run_id="f", enqueue=True)
            until(lambda: len(receiver.requests) == 2, "both were announced")
            process.send_signal(signal.SIGTERM)
            assert process.wait(240) == 0
        finally:
            process.close()
    assert sorted(request.data["event"] for request in receiver.requests) == ["gate_opened", "run_failed"]


def test_the_page_announces_too(project: Path, receiver: Receiver) -> None:
    pytest.importorskip("uvicorn")
    with shop(project) as app:
        app.start("asks", run_id="a")
        given = environment(HOOK_SECRET=SECRET, HOME=str(project), XDG_STATE_HOME=str(project))
        process = start(COMMAND, "web", "--port", "0", cwd=project, env=given)
        try:
            until(lambda: len(receiver.requests) == 1, "it was announced")
            process.send_signal(signal.SIGTERM)
            process.wait(240)
        finally:
            process.close()


def test_what_was_not_delivered_is_listed_with_the_reason(project: Path, receiver: Receiver) -> None:
    assert run("notifications", "status", cwd=project).code == 4
    with shop(project) as app:
        app.start("asks", run_id="a")
        app.start("asks", run_id="b")
    receiver.plan = [404, 500]
    assert run("worker", "--until-idle", cwd=project, HOOK_SECRET=SECRET).code == 0
    done = run("notifications", "status", cwd=project)
    assert done.code == 0
    assert "status 404" in done.out
    assert "status 500" in done.out
    found = run("notifications", "status", "--json", cwd=project).data["undelivered"]
    assert {one["status"]: one["reason"] for one in found} == {
        "failed": "target 'ops' was not notified: it responded with status 404",
        "waiting": "it responded with status 500",
    }
    failed = next(one for one in found if one["status"] == "failed")
    assert f"holdfast retry {failed['notification']}" in done.err
    assert run("retry", failed["notification"], cwd=project).code == 0
    assert run("worker", "--until-idle", cwd=project, HOOK_SECRET=SECRET).code == 0
    left = run("notifications", "status", "--json", cwd=project).data["undelivered"]
    assert [one["status"] for one in left] == ["waiting"]


def test_when_all_is_delivered_it_says_so(project: Path) -> None:
    with shop(project) as app:
        app.start("asks", run_id="a")
    assert run("worker", "--until-idle", cwd=project, HOOK_SECRET=SECRET).code == 0
    assert "every notification was delivered" in run("notifications", "status", cwd=project).err
