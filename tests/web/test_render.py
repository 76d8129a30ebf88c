"""The filters of templates."""

from __future__ import annotations

import datetime as dt
import re

from holdfast.web.render import ago


def test_a_moment_has_at_most_three_digits_of_a_fraction_as_html_demands() -> None:
    moment = dt.datetime(2026, 3, 31, 10, 15, 39, 948131, tzinfo=dt.UTC)
    text = ago(moment, moment + dt.timedelta(minutes=3))
    assert re.findall(r'datetime="([^"]*)"', text) == ["2026-03-31T10:15:39.948+00:00"]
    assert text.endswith(">3 min ago</time>")
    assert 'datetime="2026-03-31T10:15:39.000+00:00"' in ago(moment.replace(microsecond=0))
