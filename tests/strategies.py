"""Values and edits for property tests."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

from hypothesis import strategies as st

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(2**200), max_value=2**200),
    st.floats(allow_nan=False, allow_infinity=False),
    text,
    st.binary(max_size=60),
    st.uuids(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.datetimes(timezones=st.none() | st.timezones() | st.just(dt.UTC)),
    st.dates(),
    st.times(),
    st.timedeltas(),
)
hashable = st.one_of(st.integers(), text, st.binary(max_size=20), st.tuples(st.integers(), text))
values = st.recursive(
    scalars | st.sets(hashable, max_size=4) | st.frozensets(hashable, max_size=4),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(text, inner, max_size=5),
        st.lists(inner, max_size=4).map(tuple),
    ),
    max_leaves=25,
)

messages = st.builds(
    lambda role, words, extra: {"role": role, "content": " ".join(words), "extra": extra},
    st.sampled_from(["user", "assistant", "tool"]),
    st.lists(st.sampled_from(["alpha", "beta", "gamma delta", "epsilon " * 9, "zeta " * 40]), min_size=1, max_size=30),
    scalars,
)


def exactly(value: Any) -> Any:
    """Something that is equal only for values that are equal in type, order and sign, all the way down."""
    if isinstance(value, dict):
        return ("dict", [(key, exactly(part)) for key, part in value.items()])
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [exactly(part) for part in value])
    if isinstance(value, (set, frozenset)):
        return (type(value).__name__, sorted(repr(exactly(part)) for part in value))
    if isinstance(value, (float, decimal.Decimal)):
        return (type(value).__name__, repr(value))
    if isinstance(value, dt.datetime):
        return ("datetime", value.isoformat(), str(value.tzinfo), value.fold)
    return (type(value).__name__, value)
