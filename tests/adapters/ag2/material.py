"""What the tests of this adapter share."""

from __future__ import annotations

import pytest

pytest.importorskip("ag2")
from pydantic import BaseModel


class Receipt(BaseModel):
    order: str
    amount: int
