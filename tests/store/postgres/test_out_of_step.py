"""A connection whose answers no longer fit its questions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.store.postgres import postgres_writer
from holdfast.store.postgres.transaction import Transaction
from tests.store.postgres.shared_servers import new_url


@pytest.fixture
def store() -> Iterator[holdfast.Store]:
    with holdfast.open(new_url()) as found:
        yield found


def test_a_driver_that_is_out_of_step_gets_another_connection(
    store: holdfast.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an interrupt it may take the answers of before for those to a new question. Nothing was written yet."""
    store.append("run", [{"kind": "n"}])
    real = Transaction
    failed: list[int] = []

    def out_of_step(*args: Any, **more: Any) -> Any:
        if not failed:
            failed.append(1)
            raise psycopg.InternalError("unexpected result status from query: PIPELINE_SYNC")
        return real(*args, **more)

    monkeypatch.setattr(postgres_writer, "Transaction", out_of_step)
    assert store.mark_done("run", "key")
    assert failed
    assert len(store.effects("run")) == 1
