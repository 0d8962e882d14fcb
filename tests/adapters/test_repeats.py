from rollscope.adapters._repeats import Repeats


def test_a_name_met_again_is_numbered() -> None:
    repeats = Repeats()
    assert [repeats.unique(n) for n in "abaa"] == ["a", "b", "a#1", "a#2"]


def test_only_the_newest_names_are_remembered() -> None:
    repeats = Repeats(remembered=2)
    for name in "abc":
        repeats.unique(name)
    assert [repeats.before(n) for n in "cba"] == [1, 1, 0]
