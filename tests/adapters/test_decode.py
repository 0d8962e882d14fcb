"""Token ends are exact to the byte, or they are absent."""

import gc
import random
import weakref

from bytetok import ByteTokenizer

from rollscope.adapters._decode import decode, join_pieces, own

TOK = ByteTokenizer()


def test_ends_of_plain_text_are_one_character_each() -> None:
    assert decode(TOK, TOK.encode("abc")) == ("abc", [1, 2, 3])


def test_tokens_that_share_a_character_have_the_same_end() -> None:
    text, ends = decode(TOK, TOK.encode("a🙂é!"))
    assert text == "a🙂é!"
    assert ends == [1, 2, 2, 2, 2, 3, 3, 4]


def test_a_special_token_is_as_wide_as_its_text() -> None:
    text, ends = decode(TOK, TOK.encode("<|im_end|>x"))
    assert (text, ends) == ("<|im_end|>x", [10, 11])


def test_a_row_cut_inside_a_character_still_adds_up() -> None:
    ids = TOK.encode("a🙂")[:-1]
    text, ends = decode(TOK, ids)
    assert text == "a\ufffd"
    assert ends == [1, 2, 2, 2]


def test_bytes_that_are_no_text_are_replaced_like_the_tokenizer_does() -> None:
    ids = [0x61, 0xFF, 0xFE, 0x62, 0xE4, 0x62]
    text, ends = decode(TOK, ids)
    assert text == TOK.decode(ids) == "a\ufffd\ufffdb\ufffdb"
    assert ends == [1, 2, 3, 4, 5, 6]


def test_no_byte_at_the_end_is_lost_that_can_become_no_character() -> None:
    assert join_pieces([b"a", b"\xed", b"\xa0"]) == ("a\ufffd\ufffd", [1, 2, 3])
    assert join_pieces([b"\xf4\x90", b"a"]) == ("\ufffd\ufffda", [2, 3])
    pool = bytes([0x61, 0xE4, 0xB8, 0xAD, 0xF0, 0x9F, 0xED, 0xA0, 0xF4, 0x90, 0xC0, 0xFF, 0x80])
    chosen = random.Random(1)
    for _ in range(4000):
        raw = bytes(chosen.choice(pool) for _ in range(chosen.randint(1, 8)))
        for n in (1, 2, 3):
            pieces = [raw[i : i + n] for i in range(0, len(raw), n)]
            text, ends = join_pieces(pieces)
            assert (text, ends[-1]) == (raw.decode("utf-8", "replace"), len(text))
            assert ends == sorted(ends)


def test_a_replacement_character_that_was_written_is_kept() -> None:
    assert decode(TOK, TOK.encode("\ufffd\ufffdx"))[0] == "\ufffd\ufffdx"
    assert decode(TOK, TOK.encode("\ufffd\ufffdx"))[1] == [1, 1, 1, 2, 2, 2, 3]


def test_an_empty_row_has_an_empty_text() -> None:
    assert decode(TOK, []) == ("", [])


def test_pieces_that_do_not_add_up_leave_the_ends_unknown() -> None:
    class Shouting:
        """Decodes a row differently from its parts."""

        def decode(self, ids: list[int]) -> str:
            text = bytes(ids).decode()
            return text.upper() if len(ids) > 2 else text

    assert decode(Shouting(), list(b"abcd")) == ("ABCD", None)


def test_byte_pieces_join_to_text_with_ends() -> None:
    assert join_pieces([b"a\xe4", b"\xb8", b"\xad", b"b"]) == ("a中b", [2, 2, 2, 3])


def test_the_trainers_tokenizer_is_never_used() -> None:
    """Another thread of the trainer may be using it at this moment."""

    class Guarded(ByteTokenizer):
        used = 0

        def decode(self, ids: list[int]) -> str:
            self.used += 1
            return super().decode(ids)

    tokenizer = Guarded()
    assert decode(tokenizer, tokenizer.encode("abc")).text == "abc"
    assert decode(tokenizer, tokenizer.encode("abd")).text == "abd"
    assert tokenizer.used == 0


def test_a_copy_goes_when_its_tokenizer_goes() -> None:
    tokenizer = ByteTokenizer()
    copy = weakref.ref(own(tokenizer))
    assert own(copy()) is copy() is not tokenizer
    del tokenizer
    gc.collect()
    assert copy() is None


def test_a_tokenizer_that_cannot_be_copied_is_used_as_it_is() -> None:
    class Fixed(ByteTokenizer):
        def __deepcopy__(self, memo: object) -> object:
            raise TypeError("cannot be copied")

    tokenizer = Fixed()
    assert decode(tokenizer, tokenizer.encode("a🙂")) == ("a🙂", [1, 2, 2, 2, 2])
