"""Values of a trainer, one for each token."""

import random

import pytest

from rollscope.adapters._arrays import runs, where


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
