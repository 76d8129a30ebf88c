"""The commit-message hook accepts `area: imperative summary` and reports anything else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOOKS = Path(__file__).parent.parent.parent / "scripts" / "hooks"


def run_hook(message: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "COMMIT_EDITMSG"
    path.write_text(message, "utf-8")
    command = [sys.executable, str(HOOKS / "commit-msg"), str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.parametrize(
    "message",
    [
        "store: retry a save whose sync failed",
        "graphs, runtime: compress chunks above 4 KiB\n\nSmaller chunks grow.\n",
        "docs/store.md: seed the example\n# a comment of git\n",
        "fixup! store: retry a save",
        "Merge branch 'docs'",
    ],
)
def test_a_good_message_is_accepted(message: str, tmp_path: Path) -> None:
    done = run_hook(message, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("", "write `area: imperative summary`"),
        ("Retry a save", "write `area: imperative summary`"),
        ("store: Retry a save", "write `area: imperative summary`"),
        ("store: retried a save", "begins with 'retried'"),
        ("store: retrying a save", "begins with 'retrying'"),
        ("store: retries a save", "begins with 'retries'"),
        ("store: retry a save.", "ends with a period"),
        ("store: wip on retries", "contains 'wip'"),
        ("store: retry " + "x" * 72, "has 85 columns"),
        ("store: retry a save\nbecause syncs fail", "second line is not empty"),
    ],
)
def test_a_bad_message_is_refused_with_the_reason(message: str, problem: str, tmp_path: Path) -> None:
    done = run_hook(message, tmp_path)
    assert done.returncode == 1
    assert problem in done.stderr


def test_git_runs_the_hook_once_hooks_path_is_set(tmp_path: Path) -> None:
    home = {**os.environ, "HOME": str(tmp_path), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    author = ["-c", "user.name=ana", "-c", "user.email=ana@example.org", "-c", f"core.hooksPath={HOOKS}"]

    def git(*arguments: str) -> int:
        command = ["git", *author, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=home, capture_output=True, timeout=240, check=False).returncode

    assert git("init") == 0
    assert git("commit", "--allow-empty", "-m", "wip") == 1
    assert git("commit", "--allow-empty", "-m", "store: retry a save") == 0
