"""Token ends with real Hugging Face tokenizers of every kind: they add up to the byte."""

import random
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rollscope import Rollout
from rollscope.adapters import _decode, _messages
from rollscope.adapters._decode import Decoded, _token_bytes, decode, join_pieces
from rollscope.adapters._messages import split
from rollscope.model import wire

TEXTS = [
    "Hello, world! It's 2+3 = 5.",
    "  leading and   inner spaces\n\n\ttabs \n",
    "中文，混合 text，日本語の文。",
    "🙂👩‍👩‍👧‍👦🏳️‍🌈 flags 🇩🇪",
    "naïve café — “quotes” … ½ \u200b zero width",
    "a\ufffdb",
]


def byte_level() -> Tokenizer:
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|im_start|>", "<|im_end|>", "<｜end▁of▁sentence｜>"],
        show_progress=False,
    )
    tok.train_from_iterator(TEXTS[:4] * 3, trainer)
    return tok


def sentencepiece_like() -> Tokenizer:
    """Llama 2's way: a mark for spaces, unknown characters as byte tokens."""
    pieces = ["<unk>", "<|im_start|>", "<|im_end|>", *(f"<0x{b:02X}>" for b in range(256))]
    pieces += ["▁", "▁Hello", "▁world", "▁te", "xt", "l", "e", "o", "中", "▁2", "+", "3"]
    tok = Tokenizer(
        models.BPE(
            vocab={p: i for i, p in enumerate(pieces)},
            merges=[],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tok.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tok.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    return tok


KINDS = {"byte-level": byte_level, "sentencepiece": sentencepiece_like}


@pytest.fixture(scope="module", params=list(KINDS))
def tokenizer(request) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=KINDS[request.param](), eos_token="<|im_end|>")


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_the_tokenizers_own_and_every_token_has_its_end(tokenizer, text) -> None:
    ids = tokenizer.encode(text + "<|im_end|>", add_special_tokens=False)
    decoded = decode(tokenizer, ids)
    assert decoded.text == tokenizer.decode(ids, skip_special_tokens=False)
    assert decoded.ends is not None and len(decoded.ends) == len(ids)
    assert decoded.ends[-1] == len(decoded.text)
    for i in range(len(ids)):  # every prefix that is whole text ends where we say
        prefix = tokenizer.decode(ids[: i + 1], skip_special_tokens=False)
        if not prefix.endswith("\ufffd"):
            assert decoded.ends[i] == len(prefix)


@pytest.mark.parametrize("text", TEXTS)
def test_rows_split_into_messages_keep_every_character(tokenizer, text) -> None:
    given = tokenizer.encode(
        f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n", add_special_tokens=False
    )
    written = tokenizer.encode(f"{text}<|im_end|>", add_special_tokens=False)
    ids, mask = given + written, [0] * len(given) + [1] * len(written)
    messages = split(ids, tokenizer=tokenizer, sampled=mask)
    assert [m.role for m in messages] == ["user", "assistant"]
    assert "".join(
        m.meta.get("before", "") + m.content + m.meta.get("after", "") for m in messages
    ) == tokenizer.decode(ids, skip_special_tokens=False)


def rows(tokenizer, dice: random.Random) -> Iterator[list[int]]:
    """Rows of text with marks in it, and rows of any ids, which make no text."""
    for _ in range(150):
        words = "".join(dice.choices([*TEXTS, "<|im_start|>user\n", "<|im_end|>\n"], k=4))
        ids = tokenizer.encode(words, add_special_tokens=False)
        yield ids[: dice.randint(1, len(ids))]
        yield dice.choices(range(len(tokenizer) + 3), k=dice.randint(1, 30))


def test_rows_of_known_and_of_new_tokens_are_decoded_alike(monkeypatch) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level(), eos_token="<|im_end|>")
    for ids in rows(tokenizer, random.Random(7)):
        text = tokenizer.decode(ids, skip_special_tokens=False)
        pieces = [
            b"" if t is None else _token_bytes(t) for t in tokenizer.convert_ids_to_tokens(ids)
        ]
        expected = (text, join_pieces(pieces)[1])
        found = decode(tokenizer, ids)
        assert (found.text, list(found.ends)) == expected
        with monkeypatch.context() as patched:  # as if the trainer had not loaded it
            patched.setitem(sys.modules, "numpy", None)
            assert decode(tokenizer, ids) == expected


def test_a_row_with_a_new_token_costs_no_more_than_the_token(monkeypatch) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level(), eos_token="<|im_end|>")
    decode(tokenizer, tokenizer.encode("Hello" * 100, add_special_tokens=False))
    seen = []
    text_of = _decode._text
    monkeypatch.setattr(_decode, "_text", lambda t, ids: seen.append(list(ids)) or text_of(t, ids))
    ids = tokenizer.encode("Hello" * 100 + "+", add_special_tokens=False)
    assert decode(tokenizer, ids).text == "Hello" * 100 + "+"
    assert seen == [ids[-1:]]


def test_ends_as_an_array_and_as_a_list_make_the_same_messages(monkeypatch) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level(), eos_token="<|im_end|>")
    dice = random.Random(3)

    def as_list(tokenizer, ids, row=None):
        text, ends = decode(tokenizer, ids, row)
        return Decoded(text, None if ends is None else list(map(int, ends)))

    for ids in rows(tokenizer, dice):
        mask = [dice.random() < 0.5] * dice.randint(0, len(ids))
        mask += [True] * (len(ids) - len(mask))
        given = {"tokenizer": tokenizer, "sampled": mask, "streams": {"mask": mask}}
        found = split(ids, **given)
        with monkeypatch.context() as patched:
            patched.setattr(_messages, "decode", as_list)
            expected = split(ids, **given)
        assert found == expected == split(np.array(ids), **given)
        lines = [wire.rollout_line(Rollout(messages=m)).encode() for m in (found, expected)]
        assert lines[0] == lines[1]
