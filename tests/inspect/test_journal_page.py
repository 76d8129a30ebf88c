"""Pages of journals and ledgers, from either end, with filters and with damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Store
from holdfast.errors import RunNotFound
from holdfast.inspect import journal_page as module
from holdfast.inspect.journal_page import journal_page, ledger_page
from holdfast.store.journal_prune import ChooseEntries


@pytest.fixture(params=["memory:", "sqlite:{}/runs.db", "dir:{}/runs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with holdfast.open(request.param.format(tmp_path)) as found:
        yield found


def fill(store: Store, count: int) -> None:
    store.append("r", [{"kind": "log" if number % 10 == 0 else "step", "n": number} for number in range(1, count + 1)])


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("limit", [1, 7, 100])
def test_pages_together_have_every_entry_in_order(store: Store, newest_first: bool, limit: int) -> None:
    fill(store, 53)
    found: list[int] = []
    start: int | None = None
    while True:
        page = journal_page(store, "r", start=start, newest_first=newest_first, limit=limit)
        assert len(page.lines) <= limit
        found += [line.data["n"] for line in page.lines]
        if page.following is None:
            break
        start = page.following
    wanted = list(range(1, 54))
    assert found == (wanted[::-1] if newest_first else wanted)


def test_entries_of_one_kind_or_with_some_content_are_searched_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 60)
    page = journal_page(store, "r", kind="log", limit=4)
    assert [line.position for line in page.lines] == [60, 50, 40, 30]
    rest = journal_page(store, "r", kind="log", limit=4, start=page.following)
    assert [line.position for line in rest.lines] == [20, 10]
    assert rest.following is None
    found = journal_page(store, "r", wanted=lambda line: line.data["n"] % 25 == 0)
    assert [line.position for line in found.lines] == [50, 25]
    monkeypatch.setattr(module, "SCANNED_MAX", 20)
    first = journal_page(store, "r", kind="none")
    assert (first.lines, first.following, first.searched) == ((), 40, 20)


def test_a_pruned_range_is_one_line_from_either_end(store: Store) -> None:
    fill(store, 40)
    choose: ChooseEntries = lambda run, rows: [(5, 30)]  # noqa: E731
    store.port.prune_entries("r", choose)
    for newest_first in (True, False):
        for limit in (3, 10, 100):
            found: list[tuple[int, int]] = []
            start: int | None = None
            while True:
                page = journal_page(store, "r", start=start, newest_first=newest_first, limit=limit)
                found += [(line.position, line.last) for line in page.lines]
                start = page.following
                if start is None:
                    break
            wanted = [*((n, n) for n in range(1, 5)), (5, 30), *((n, n) for n in range(31, 41))]
            assert found == (wanted[::-1] if newest_first else wanted), (newest_first, limit)
    inside = journal_page(store, "r", start=17, newest_first=False)
    assert inside.lines[0].position == 5


def test_a_large_entry_is_named_and_not_decoded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHOWN_BYTES_MAX", 100)
    store.append("r", [{"kind": "big", "text": bytes(range(256)) * 20}, {"kind": "small", "n": 1}])
    small, big = journal_page(store, "r").lines
    assert (small.data["n"], small.is_left_out) == (1, False)
    assert (big.data, big.is_left_out) == (None, True)
    assert big.size > 100


def test_ledgers_are_listed_newest_first(store: Store) -> None:
    store.save("r", {})
    for number in range(1, 24):
        store.mark_intent("r", f"effect-{number}", tool="mail", target="ida")
    found: list[str] = []
    start: int | None = None
    while True:
        page = ledger_page(store, "r", start=start, limit=10)
        found += [line.key for line in page.lines]
        start = page.following
        if start is None:
            break
    assert found == [f"effect-{number}" for number in range(23, 0, -1)]
    assert page.total == 23
    effect = page.lines[0].effect
    assert effect is not None
    assert (effect.state, effect.target) == ("in_doubt", "ida")


def test_an_unknown_run_is_not_found_and_an_empty_one_has_no_lines(store: Store) -> None:
    for read in (journal_page, ledger_page):
        with pytest.raises(RunNotFound):
            read(store, "missing")
    store.save("empty", {})
    assert journal_page(store, "empty").lines == ()
    assert ledger_page(store, "empty").lines == ()
