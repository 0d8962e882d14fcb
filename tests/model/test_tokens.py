"""Numbers of streams, as the format holds them."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from rollscope.model.tokens import float32, to_list

NUMBERS = st.one_of(st.floats(), st.floats(width=32), st.integers(-(2**64), 2**64), st.booleans())


@given(st.lists(NUMBERS | st.none()))
def test_a_list_is_rounded_like_each_of_its_numbers(values: list[float | None]) -> None:
    one_by_one = [None if v is None else float32(v) for v in values]
    for given_as in (values, tuple(values)):
        assert _exact(to_list(given_as, False)) == _exact(one_by_one)


def test_bytes_are_numbers_of_their_own() -> None:
    assert to_list(b"\1\0\2\0", False) == [1.0, 0.0, 2.0, 0.0]


def _exact(values: list[float | None]) -> list[bytes | None]:
    """With the sign of zero; any NaN is the same."""
    assert all(v is None or type(v) is float for v in values)
    return [None if v is None else b"nan" if v != v else struct.pack("<d", v) for v in values]
