"""The session secret, and the sessions that were ended, are in files that only their owner can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from holdfast.errors import InvalidInput
from holdfast.web.state_directory import EndedSessions, load_secret, make_secret, state_directory


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("HOLDFAST_WEB_SECRET", raising=False)
    return tmp_path / "state" / "holdfast"


def test_the_secret_is_made_once_and_only_its_owner_can_read_it(state: Path) -> None:
    first = load_secret()
    assert load_secret() == first
    assert len(first) == 32
    assert stat.S_IMODE((state / "web-secret").stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert os.listdir(state) == ["web-secret"]


def test_a_secret_that_others_can_read_or_that_is_short_is_refused(state: Path) -> None:
    load_secret()
    (state / "web-secret").chmod(0o644)
    with pytest.raises(InvalidInput, match="chmod 600"):
        load_secret()
    (state / "web-secret").chmod(0o600)
    (state / "web-secret").write_text("short")
    with pytest.raises(InvalidInput, match="remove it"):
        load_secret()


def test_the_environment_comes_first(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_WEB_SECRET", "s" * 32)
    assert load_secret() == make_secret("s" * 32)
    assert not state.exists()
    monkeypatch.setenv("HOLDFAST_WEB_SECRET", "short")
    with pytest.raises(InvalidInput, match="at least 32"):
        load_secret()


def test_a_relative_state_directory_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", "/anas-home")
    assert state_directory() == "/anas-home/.local/state/holdfast"


def test_ended_sessions_are_forgotten_when_they_have_expired_and_damage_does_not_matter(tmp_path: Path) -> None:
    path, now = tmp_path / "ended", 1000.0
    EndedSessions(str(path), now=lambda: now).add("a", 1010)
    EndedSessions(str(path), now=lambda: now).add("b", 2000)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "a" in EndedSessions(str(path), now=lambda: now)
    now = 1500.0
    found = EndedSessions(str(path), now=lambda: now)
    assert "a" not in found
    assert "b" in found
    path.write_bytes(b"\xff\xfe broken\nx\n\nb 2000\n")
    assert "b" in EndedSessions(str(path), now=lambda: now)
    nowhere = EndedSessions("/dev/null/ended", now=lambda: now)
    nowhere.add("c", 2000)
    assert "c" in nowhere
