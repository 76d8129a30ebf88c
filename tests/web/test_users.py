"""The users file: what it contains, that only its owner has access, and that changes take effect."""

from __future__ import annotations

import datetime as dt
import logging
import os
import stat
from pathlib import Path

import pytest

from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.files.durable import put_file
from holdfast.files.os_files import SystemFiles
from holdfast.web import users as users_module
from holdfast.web.identity import User
from holdfast.web.users import Entry, Users, hash_token, new_token, put_user, read_users, remove_user

NOW = dt.datetime(2026, 11, 18, 12, 0, tzinfo=dt.UTC)


def entry(name: str, token: str = "hf_x", **more: object) -> Entry:
    expires = more.pop("expires", None)
    assert expires is None or isinstance(expires, dt.datetime)
    return Entry(user=User(name=name, **more), token_hash=hash_token(token), expires=expires)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "deep" / "users.toml")


def test_users_are_read_as_they_were_written(path: str) -> None:
    ben = entry("ben", role="approver", groups=("finance", "leads"), workflows=("refund*",), expires=NOW)
    odd = entry('o"dd \\ nämé', groups=("a b",))
    put_user(path, ben)
    put_user(path, odd)
    assert read_users(path) == [ben, odd]
    replaced = entry("ben", token="hf_y")
    put_user(path, replaced)
    assert read_users(path) == [odd, replaced]
    remove_user(path, odd.user.name)
    assert read_users(path) == [replaced]


def test_the_file_is_created_for_its_owner_only_and_has_no_token(path: str) -> None:
    token = new_token()
    put_user(path, entry("ben", token))
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    assert token not in Path(path).read_text()
    assert os.listdir(os.path.dirname(path)) == ["users.toml"]


def test_a_token_has_256_random_bits_and_a_prefix_that_scanners_find() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(token.startswith("hf_") and len(token) == 3 + 43 for token in tokens)


def test_comments_of_the_file_are_kept(path: str) -> None:
    put_user(path, entry("ben"))
    text = Path(path).read_text()
    Path(path).write_text(f"# our users\n{text}# the end of ben\n")
    put_user(path, entry("ana"))
    remove_user(path, "ana")
    assert Path(path).read_text().rstrip() == f"# our users\n{text}# the end of ben"


def test_a_file_that_is_written_in_another_style_is_not_rewritten(path: str) -> None:
    put_user(path, entry("ben"))
    text = f'user = [{{name = "ben", token = "sha256:{"0" * 64}"}}]\n'
    Path(path).write_text(text)
    with pytest.raises(InvalidInput, match="edit it by hand"):
        put_user(path, entry("ana"))
    assert Path(path).read_text() == text


def test_removing_a_user_there_is_not_is_an_error(path: str) -> None:
    put_user(path, entry("ben"))
    with pytest.raises(NotFound, match="'bob'"):
        remove_user(path, "bob")


def test_two_writers_do_not_lose_a_user(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put_user(path, entry("ben"))
    real = put_file

    def interrupted(*args: object, **kwargs: object) -> bool:
        monkeypatch.setattr(users_module, "put_file", real)
        put_user(path, entry("ana"))
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(users_module, "put_file", interrupted)
    with pytest.raises(Conflict, match="another process"):
        put_user(path, entry("carl"))
    assert [each.user.name for each in read_users(path)] == ["ben", "ana"]


@pytest.mark.parametrize("mode", [0o644, 0o666, 0o620, 0o604, 0o601])
def test_a_file_that_others_can_use_is_refused(path: str, mode: int) -> None:
    put_user(path, entry("ben"))
    os.chmod(path, mode)
    with pytest.raises(InvalidInput, match="chmod 600"):
        read_users(path)
    os.chmod(path, 0o640)  # a group may read it, as with secrets that a container mounts
    read_users(path)


WRONG_ENTRIES = [
    "",
    "name = 7",
    'name = ""',
    'name = "a"\nrole = "king"',
    'name = "a"\nrole = 7',
    'name = "a"\ntoken = "hf_plain"',
    'name = "a"\npassword = "x"',
    'name = "a"\ngroups = "x"',
    'name = "a"\nworkflows = [1]',
    'name = "a"\nexpires = "soon"',
    'name = "a"\n[[user]]\nname = "a"',
    'name = "a\\nb"',
    'name = "a\\u200b"',
    'name = "a"\n[[user]]\nname = " a "',
    'name = "a"\ngroups = ["\\u0007"]',
]
WRONG_FILES = ["[[user]", "\x00", "user = [1]", '[user]\nname = "a"', '[[users]]\nname = "a"']


@pytest.mark.parametrize("text", [*WRONG_FILES, *(f"[[user]]\n{entry}\n" for entry in WRONG_ENTRIES)])
def test_an_invalid_file_is_refused_and_admits_no_user(tmp_path: Path, text: str) -> None:
    path = tmp_path / "users.toml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(InvalidInput):
        read_users(str(path))
    assert Users(str(path)).by_name("a") is None


def test_names_of_the_file_are_compared_without_spaces_around_them_and_in_one_spelling(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    path.write_text('[[user]]\nname = " zoe\\u0308 "\n[[user]]\nname = "Ana"\n')
    path.chmod(0o600)
    assert [each.user.name for each in read_users(str(path))] == ["zo\xeb", "Ana"]
    assert Users(str(path)).by_name("ana") is None
    put_user(str(path), entry("zo\xeb", role="operator"))
    assert [(each.user.name, each.user.role) for each in read_users(str(path))] == [
        ("Ana", "viewer"),
        ("zo\xeb", "operator"),
    ]
    remove_user(str(path), "zoe\u0308")
    assert [each.user.name for each in read_users(str(path))] == ["Ana"]


def test_a_file_that_is_not_text_or_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    for data in (b"\xff\xfe", b"#" * (users_module.FILE_BYTES_MAX + 1)):
        path.write_bytes(data)
        path.chmod(0o600)
        with pytest.raises(InvalidInput):
            read_users(str(path))
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_users(str(tmp_path / "none.toml"))


def test_a_token_finds_its_user_until_it_expires(path: str) -> None:
    now = NOW
    put_user(path, entry("ben", "hf_ben", expires=NOW + dt.timedelta(hours=1)))
    put_user(path, entry("ana", "hf_ana"))
    users = Users(path, now=lambda: now)
    found = users.by_token("hf_ben")
    assert found is not None
    assert found.user.name == "ben"
    for wrong in ("", "hf_", "hf_be", "hf_benn", "HF_BEN", "x" * 100_000, "ü", "\ud800", found.token_hash):
        assert users.by_token(wrong) is None
    now = NOW + dt.timedelta(hours=1)
    assert users.by_token("hf_ben") is None
    assert users.by_name("ben") is None
    assert users.by_name("ana") is not None


def test_a_user_without_a_token_cannot_log_in(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    path.write_text('[[user]]\nname = "ben"\n')
    path.chmod(0o600)
    users = Users(str(path))
    assert users.by_name("ben") is not None
    assert users.by_token("") is None


def test_dates_and_times_without_a_zone_are_utc(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    path.write_text('[[user]]\nname = "a"\nexpires = 2026-11-18\n[[user]]\nname = "b"\nexpires = 2026-11-18T12:00:00\n')
    path.chmod(0o600)
    assert [each.expires for each in read_users(str(path))] == [NOW.replace(hour=0), NOW]


def test_each_change_of_the_file_takes_effect_at_once(path: str) -> None:
    put_user(path, entry("ben", role="viewer"))
    users = Users(path)
    for role in ("operator", "approver", "viewer") * 3:
        put_user(path, entry("ben", role=role))
        found = users.by_name("ben")
        assert found is not None
        assert found.user.role == role
    text = Path(path).read_text()
    for role in ("operator", "approver") * 3:  # in place, within one tick of the clock
        Path(path).write_text(text.replace('"viewer"', f'"{role}"'))
        found = users.by_name("ben")
        assert found is not None
        assert found.user.role == role
    remove_user(path, "ben")
    assert users.by_name("ben") is None


def test_a_file_that_did_not_change_is_not_read_again(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put_user(path, entry("ben"))
    monkeypatch.setattr(users_module, "_SETTLED_NS", -1 << 62)
    users = Users(path)
    assert users.by_name("ben") is not None
    monkeypatch.setattr(users_module, "read_users", None)
    assert users.by_name("ben") is not None


def test_a_file_that_becomes_unusable_admits_no_user_until_it_is_repaired(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    put_user(path, entry("ben"))
    users = Users(path)
    assert users.by_name("ben") is not None
    os.chmod(path, 0o644)
    with caplog.at_level(logging.ERROR, "holdfast.web"):
        assert users.by_name("ben") is None
        assert users.by_name("ben") is None
    assert ["no user has access" in record.message for record in caplog.records] == [True]
    os.chmod(path, 0o600)
    assert users.by_name("ben") is not None
    os.unlink(path)
    assert users.by_name("ben") is None


def test_an_optional_file_may_be_missing(path: str) -> None:
    users = Users(path, optional=True)
    users.check()
    assert users.by_token("hf_x") is None
    put_user(path, entry("ben"))
    assert users.by_token("hf_x") is not None
    with pytest.raises(InvalidInput):
        Users(f"{path}.none").check()


def test_a_link_to_the_file_stays_a_link(tmp_path: Path, path: str) -> None:
    put_user(path, entry("ben"))
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    put_user(str(link), entry("ana"))
    assert link.is_symlink()
    assert len(read_users(path)) == 2
    assert SystemFiles().identity(path) is not None
