"""What all tests share."""

from __future__ import annotations

import signal

import pytest

pytest.register_assert_rewrite("holdfast.testing.contract")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell starts background jobs so, and the processes of the tests would inherit it: Ctrl-C could not be tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)
