"""What all tests share."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("holdfast.testing.contract")
