"""Values of a trainer, one for each token."""

import random

import pytest

from rollscope.adapters._arrays import listed, runs, where


def test_values_at_marks_are_kept_and_the_others_are_missing() -> None:
    np = pytest.importorskip("numpy")
    dice = random.Random(5)
    for n in (0, 1, 2, 30):
        for _ in range(20):
            marks = dice.choices([0, 1], k=n)
            values = [dice.random() for _ in marks]
            expected = [v if m else None for v, m in zip(values, marks, strict=True)]
            for given in (marks, list(map(bool, marks)), [2.5 * m for m in marks], np.array(marks)):
                assert where(given, values) == where(given, np.array(values)) == expected
            assert [m for begin, end, m in runs(marks) for _ in range(begin, end)] == marks
    with pytest.raises(ValueError, match="2 values for 1 marks"):
        where([1], [0.5, 0.5])


def test_an_array_is_listed_as_python_numbers_however_often_they_repeat() -> None:
    np = pytest.importorskip("numpy")
    dice = random.Random(7)
    for n in (0, 1, 2, 9, 100):
        for kinds in ([1], [0, 1], [3, -1, 7], range(1000)):
            row = sorted(dice.choices(kinds, k=n)) if n > 9 else dice.choices(kinds, k=n)
            for kind in ("i4", "i8", "f4"):
                found = listed(np.array(row, kind))
                assert found == row
                assert set(map(type, found)) <= {float if kind == "f4" else int}
    assert listed(np.array([True, True, False])) == [True, True, False]
