"""`holdfast web`: what its options demand, its settings, and the tokens of users."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli.commands.web import Options, web_command
from holdfast.web.users import Users
from tests.cli.processes import Done, command
from tests.web.processes import WebProcess

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli-json-acting.md"


def web(folder: Path, *arguments: str, **env: str) -> Done:
    return command("web", *arguments, cwd=folder, XDG_STATE_HOME=str(folder / "state"), **env)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with holdfast.open(f"sqlite:{tmp_path / 'holdfast.db'}") as store:
        store.save("run-1", {})
    return tmp_path


# --- serving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_address_that_other_machines_reach_needs_users(folder: Path, host: str) -> None:
    done = web(folder, "--host", host)
    assert done.code == 2
    assert "must know its users: --users FILE" in done.err
    assert "--proxy-header NAME with --trust CIDR" in done.err
    assert not (folder / "state").exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--proxy-header", "X-User"), "needs --trust CIDR"),
        (("--proxy-header", "X-User", "--trust", "everyone"), "is not a network"),
        (("--https-cert", "a.pem"), "belong together"),
        (("--https-cert", "a.pem", "--https-key", "a.key"), "a.pem does not exist"),
        (("--users", "none.toml"), "none.toml cannot be read"),
        (("--allowed-host", "http://x/"), "is not a host name"),
        (("--host", "no-such-host.invalid"), "cannot be resolved"),
        (("--port", "70000"), "0<=x<=65535"),
        (("--role", "king"), "king"),
        (("--role", "viewer"), "--role is for users that a proxy names"),
        (("--users", "users.toml", "--role", "viewer"), "--role is for users that a proxy names"),
        (("--groups-header", "X-Groups"), "--groups-header is for users that a proxy names"),
        (("--mask", "a[b"), "'a[b' is not a path"),
        (("--mask", "."), "'.' is not a path"),
    ],
)
def test_options_that_do_not_fit_are_wrong_usage(folder: Path, options: tuple[str, ...], problem: str) -> None:
    done = web(folder, "--port", "0", *options)
    assert done.code == 2, done
    assert problem in done.err


def test_a_store_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    done = web(tmp_path, "--port", "0")
    assert done.code == 4
    assert "there is no store" in done.err


def test_a_store_in_memory_is_refused_because_no_other_process_sees_it(tmp_path: Path) -> None:
    done = command("web", "--store", "memory:", "--port", "0", cwd=tmp_path, XDG_STATE_HOME=str(tmp_path / "state"))
    assert done.code == 2
    assert "only the process that opened it sees a store in memory" in done.err
    assert "--store sqlite:PATH" in done.err


def test_a_short_secret_and_an_open_secret_file_are_refused(folder: Path) -> None:
    assert "at least 32" in web(folder, "--port", "0", HOLDFAST_WEB_SECRET="short").err
    state = folder / "state" / "holdfast"
    state.mkdir(parents=True)
    (state / "web-secret").write_text("s" * 64)
    (state / "web-secret").chmod(0o644)
    done = web(folder, "--port", "0")
    assert done.code == 2
    assert "chmod 600" in done.err


def test_without_the_extra_it_reports_what_to_install(folder: Path) -> None:
    (folder / "starlette.py").write_text("raise ImportError('gone', name='starlette')\n")
    path = os.pathsep.join((str(folder), str(Path(holdfast.__file__).parents[1])))
    for arguments in (("--port", "0"), ("token", "ben")):
        done = web(folder, *arguments, PYTHONPATH=path)
        assert done.code == 2
        assert 'pip install "holdfast[web]"' in done.err


def test_json_is_the_address_and_nothing_else(folder: Path) -> None:
    with WebProcess(folder, "--json") as server:
        client = server.client()
        token = server.urls[0].partition("token=")[2]
        assert client.post("/login", data={"token": token}).status_code == 303
        assert server.stop() == 0
        assert json.loads("".join(server.lines)).keys() == documented("web").keys()
        assert any("for another browser: http://" in line for line in server.errors)


def test_an_app_publishes_its_workflows(folder: Path) -> None:
    with WebProcess(folder, "--app", "tests.cli.shop:make", "--store", "sqlite:holdfast.db"):
        pass
    with holdfast.open(f"sqlite:{folder / 'holdfast.db'}") as store:
        assert "refund" in {info.name for info in store.workflows()}


def test_users_of_a_file_reach_a_page_of_all_addresses(folder: Path) -> None:
    token = web(folder, "token", "ben", "--role", "approver", "--users", "users.toml").out.strip()
    with WebProcess(folder, "--host", "0.0.0.0", "--users", "users.toml", "--allowed-host", "localhost") as server:
        assert re.fullmatch(r"http://localhost:\d+/", server.urls[0])
        assert any("unencrypted" in line for line in server.errors)
        client = server.client()
        assert client.get("/").status_code == 303
        assert client.post("/login", data={"token": token}).status_code == 303
        assert "ben" in client.get("/").text
        assert client.get("/", headers={"Host": "evil.example"}).status_code == 421
        removed = web(folder, "token", "--remove", "ben", "--users", "users.toml")
        assert removed.code == 0
        assert client.get("/").status_code == 303


def test_tokens_of_this_user_are_bearer_tokens_of_the_page(folder: Path) -> None:
    token = web(folder, "token", "ci", "--role", "approver").out.strip()
    with WebProcess(folder) as server:
        found = server.client().get("/api/v1/me", headers={"Authorization": f"Bearer {token}"}).json()
        assert (found["name"], found["role"]) == ("ci", "approver")


def test_a_proxy_names_the_users(folder: Path) -> None:
    options = ("--proxy-header", "X-Forwarded-User", "--trust", "127.0.0.0/8", "--role", "approver")
    more = ("--groups-header", "X-Forwarded-Groups", "--behind-https", "--allowed-host", "runs.example.com")
    with WebProcess(folder, *options, *more) as server:
        assert server.urls == ["https://runs.example.com/"]
        port = int(re.findall(r"127\.0\.0\.1:(\d+)", "".join(server.errors))[0])
        client = server.client(headers={"Host": "runs.example.com", "X-Forwarded-User": "zoe"})
        client.base_url = f"http://127.0.0.1:{port}"
        page = client.get("/", headers={"X-Forwarded-Groups": "finance,leads"})
        assert "zoe" in page.text
        assert "approver" in page.text
        assert "max-age" in page.headers["strict-transport-security"]


def test_a_proxy_without_a_users_file_gives_no_role_of_the_tokens_of_this_user(folder: Path) -> None:
    token = web(folder, "token", "zoe", "--role", "operator").out.strip()
    options = ("--proxy-header", "X-Forwarded-User", "--trust", "127.0.0.0/8")
    with WebProcess(folder, *options) as server:
        assert server.client().get("/api/v1/me", headers={"X-Forwarded-User": "zoe"}).json()["role"] == "viewer"
        assert server.client().get("/api/v1/me", headers={"Authorization": f"Bearer {token}"}).status_code == 401


def test_another_loopback_address_is_served_under_its_own_name(folder: Path) -> None:
    with WebProcess(folder, "--host", "127.8.9.1") as server:
        assert server.urls[0].startswith("http://127.8.9.1:")
        assert server.client().get("/login").status_code == 200


# --- settings ---------------------------------------------------------------------------------------------------------


def pyproject(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(f"[tool.holdfast.web]\n{text}\n")


def test_settings_of_the_project_are_used_and_options_come_first(folder: Path) -> None:
    pyproject(folder, 'host = "0.0.0.0"\nusers = "ours.toml"\nallowed-host = ["runs.local"]\nport = 1')
    below = folder / "below"
    below.mkdir()
    done = command("web", "token", "ana", "--json", cwd=below, XDG_STATE_HOME=str(folder))
    assert done.data["file"] == str(folder / "ours.toml")
    with WebProcess(folder, "--host", "127.0.0.1") as server:
        assert server.urls[0].startswith("http://runs.local:")
        assert not any("unencrypted" in line for line in server.errors)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('hosts = "x"', "'hosts', which is not a setting; they are host, port"),
        ('port = "8484"', "port in [tool.holdfast.web]"),
        ('mask = "a.b"', "must be of the type list"),
        ("mask = [1]", "must be a list of texts"),
        ('secret = "never in a project"', "'secret'"),
        ("behind-https = 1", "must be of the type bool"),
    ],
)
def test_a_setting_that_does_not_fit_is_wrong_usage(folder: Path, text: str, problem: str) -> None:
    pyproject(folder, text)
    done = web(folder, "--port", "0")
    assert done.code == 2
    assert problem in done.err


def test_the_web_table_must_be_a_table(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.holdfast]\nweb = 3\n")
    assert "must be a table" in web(folder, "--port", "0").err


def test_every_setting_is_an_option() -> None:
    from holdfast.cli.settings import _WEB

    options = {option for param in web_command.params for option in param.opts}
    assert {f"--{name}" for name in _WEB} <= options
    assert set(_WEB) <= {field.replace("_", "-") for field in Options.__struct_fields__}


# --- tokens -----------------------------------------------------------------------------------------------------------


def documented(title: str) -> dict[str, Any]:
    section = DOCUMENT.read_text().partition(f"\n## {title}\n")[2]
    found = json.loads(section.partition("```json\n")[2].partition("```")[0])
    assert isinstance(found, dict)
    return found


def test_a_token_is_printed_once_and_only_its_hash_is_stored(tmp_path: Path) -> None:
    done = web(tmp_path, "token", "ben", "--role", "approver", "--group", "finance", "--workflow", "refund*")
    assert done.code == 0
    token = done.out.strip()
    assert re.fullmatch(r"hf_[\w-]{43}", token)
    assert "not shown again" in done.err
    path = tmp_path / "state" / "holdfast" / "web-users.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token not in path.read_text()
    found = Users(str(path)).by_token(token)
    assert found is not None
    assert (found.user.role, found.user.groups, found.user.workflows) == ("approver", ("finance",), ("refund*",))
    assert token not in web(tmp_path, "token", "--list").out


def test_a_new_token_replaces_the_one_before_and_keeps_what_was_not_given(tmp_path: Path) -> None:
    first = web(tmp_path, "token", "ben", "--role", "operator", "--group", "finance", "--expires", "90d", "--json").data
    assert first.keys() == documented("web token").keys()
    refused = web(tmp_path, "token", "ben")
    assert refused.code == 2
    assert "--expires never" in refused.err
    second = web(tmp_path, "token", "ben", "--expires", "never", "--json").data
    assert second["token"] != first["token"]
    assert (second["role"], second["groups"], second["expires"]) == ("operator", ["finance"], None)
    users = Users(second["file"])
    assert users.by_token(first["token"]) is None
    assert users.by_token(second["token"]) is not None


def test_users_are_listed_and_removed(tmp_path: Path) -> None:
    assert web(tmp_path, "token", "--list", "--json").data["users"] == []
    web(tmp_path, "token", "ben", "--expires", "12h")
    web(tmp_path, "token", "ana", "--role", "operator")
    listed = web(tmp_path, "token", "--list")
    assert re.search(r"^ben +viewer", listed.out, re.MULTILINE)
    assert re.search(r"^ana +operator +never", listed.out, re.MULTILINE)
    assert web(tmp_path, "token", "--remove", "ben", "--json").data["removed"] is True
    assert web(tmp_path, "token", "--remove", "ben").code == 4
    assert [user["name"] for user in web(tmp_path, "token", "--list", "--json").data["users"]] == ["ana"]


@pytest.mark.parametrize(
    "arguments", [(), ("",), ("a\nb",), ("ben", "--expires", "soon"), ("ben", "--role", "king"), ("ben", "--group", "")]
)
def test_a_token_that_cannot_be_made_is_wrong_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert web(tmp_path, "token", *arguments).code == 2
    assert not (tmp_path / "state").exists()


def test_a_users_file_that_others_can_read_is_not_changed(tmp_path: Path) -> None:
    web(tmp_path, "token", "ben", "--users", "users.toml")
    (tmp_path / "users.toml").chmod(0o644)
    done = web(tmp_path, "token", "ana", "--users", "users.toml")
    assert done.code == 2
    assert "chmod 600" in done.err
    assert "ana" not in (tmp_path / "users.toml").read_text()
