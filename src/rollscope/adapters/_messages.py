"""A flat row of token ids to messages.

Trainers without structured messages hand over one row: prompt and response ids, and a mask
that says which of them the policy wrote. `split` cuts it

1. where the mask changes: what the policy wrote in one go is one `assistant` message;
2. inside the rest, at the headers of the chat template (`<|im_start|>user`), which count
   only where they are special tokens, not text that somebody typed;
3. where neither tells: one message with role `unknown`, never a guess.

Every token of the row lands in exactly one message, in order. `content` is the text without
the template's own marks; those are kept as `meta["before"]` and `meta["after"]`, and their
tokens have no width in `ends`. So before + content + after is the text of the tokens;
`meta["marks"]` holds the text of each token without width, by its id, and `meta["wrote"]` which
tokens of a turn the policy wrote, if a header or marks of the template are among them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..model import Message, Part, Tokens
from ..model.chat import from_chat
from ..model.conversation import WROTE
from ._arrays import runs, same_length
from ._decode import Decoded, decode

_HEADER = re.compile(
    r"<\|im_start\|> ?(?P<chatml>\w+)\n"  # Qwen and many more; SentencePiece adds a space
    r"|<\|start_header_id\|>(?P<llama>\w+)<\|end_header_id\|>\n\n"
    r"|<\|im_(?P<kimi>user|assistant|system)\|>\w+<\|im_middle\|>"
    r"|<start_of_turn> ?(?P<gemma>\w+)\n"
    r"|<\|turn>(?P<gemma4>\w+)\n"
    r"|<\|start\|>(?P<harmony>[\w.]+)(?:[^<]|<\|(?:channel|constrain)\|>)*<\|message\|>"
    r"|<\|(?P<glm>system|user|assistant|observation)\|>\n?"
    r"|<｜(?P<deepseek>User|Assistant)｜>"
)
_END = (
    r"<\|im_end\|>|<\|eot_id\|>|<\|eom_id\|>|<end_of_turn>|<turn\|>|<\|end\|>|<\|return\|>"
    r"|<\|call\|>|<｜end▁of▁sentence｜>|<\|endoftext\|>|<\|end_of_text\|>"
)
_CLOSING = re.compile(_END)
_FOOTER = re.compile(rf"(?:(?:{_END})\s*)+")
_NEAR, _MARGIN = 1000, 100
"""Closing marks are looked for in so many characters at the end of a message, and everywhere if
they begin as near as this to the first of these."""
_MARK = re.compile(r"<[^<>]*>")
_TOOL_RESULT = re.compile(r"\s*<tool_response>.*</tool_response>\s*\Z", re.DOTALL)
_ROLES = {
    "model": "assistant",
    "observation": "tool",
    "ipython": "tool",
    "developer": "system",
    "User": "user",
    "Assistant": "assistant",
}


class _Piece(NamedTuple):
    """Tokens `begin` to `end` (not included); its content begins at character `text`."""

    begin: int
    end: int
    text: int
    role: str
    sampled: bool | None


def split(
    ids: Sequence[int],
    *,
    tokenizer: Any = None,
    sampled: Sequence[Any] | None = None,
    streams: Mapping[str, Sequence[Any] | None] | None = None,
    chat: Sequence[Mapping[str, Any]] | None = None,
    turns: Sequence[Any] | None = None,
    headers: Sequence[tuple[int, int, str]] = (),
    problems: list[str] | None = None,
) -> list[Message]:
    """The messages of one row.

    `sampled` has one entry per token: did the policy write it? None: the trainer does not
    say. `turns` (a number per token) cuts further. `streams` are aligned to `ids` (see
    `after_prompt`); one of another length is left out and told in `problems`. `chat` are the
    structured messages that the row begins with, if the trainer has them: they name tool
    calls, tools and images that text cannot. `headers` are headers of a template that the
    trainer itself knows, as (first token, how many tokens, role).
    """
    problems = problems if problems is not None else []
    array = ids if type(ids).__module__ == "numpy" else None
    ids = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    n = len(ids)
    sampled = same_length("mask", sampled, n, problems)
    turns = same_length("turns", turns, n, problems)
    fitting = {
        name: fit
        for name, values in (streams or {}).items()
        if (fit := same_length(name, values, n, problems)) is not None
    }
    row = _DecodedRow(ids, tokenizer, headers, array)
    pieces: list[_Piece] = []
    for begin, end, wrote in _spans(n, sampled, turns):
        if wrote:
            pieces.append(_continued(pieces, row, begin, end))
        else:
            _add_given(pieces, row, begin, end, wrote, chat if begin == 0 else None)
    messages = [_message(row, piece, fitting) for piece in pieces]
    for message, piece in zip(messages, pieces, strict=True):
        if piece.sampled and sampled is not None:
            note_wrote(message, sampled[piece.begin : piece.end])
    return _named(messages, chat)


def note_wrote(message: Message, sampled: Sequence[Any]) -> None:
    """Remember which tokens of this turn the policy wrote, if not all."""
    begin = next((i for i, s in enumerate(sampled) if s), 0)
    end = len(sampled) - next((i for i, s in enumerate(reversed(sampled)) if s), 0)
    if (begin, end) != (0, len(sampled)):
        message.meta[WROTE] = [begin, end]


def after_prompt(prompt: int, values: Any) -> list[Any] | None:
    """A stream of the response, put behind `prompt` tokens for which it is not known."""
    if values is None:
        return None
    values = values.tolist() if hasattr(values, "tolist") else list(values)
    return [*[None] * prompt, *values]


def split_text(text: str) -> list[Message]:
    """The messages of a text that has its template's marks but no tokens (a trainer's dump).

    Whether a mark was typed cannot be told here. Text without a header is one message of
    unknown role.
    """
    headers = list(_HEADER.finditer(text))
    messages = []
    first = headers[0].start() if headers else len(text)
    if first or not headers:
        messages.append(_text_message("unknown", "", text[:first]))
    stops = [match.start() for match in headers[1:]] + [len(text)]
    for match, stop in zip(headers, stops, strict=False):
        role = match.group(match.lastgroup) if match.lastgroup is not None else "unknown"
        body = text[match.end() : stop]
        messages.append(_text_message(_ROLES.get(role, role), match.group(), body))
    return messages


def _text_message(role: str, before: str, text: str) -> Message:
    stop = next(
        (m.start() for m in _CLOSING.finditer(text) if _FOOTER.fullmatch(text, m.start())),
        len(text),
    )
    if role == "user" and _TOOL_RESULT.match(text[:stop]):
        role = "tool"
    meta = {k: v for k, v in (("before", before), ("after", text[stop:])) if v}
    return Message(role=role, content=text[:stop], meta=meta)


class _DecodedRow:
    """The ids of a row with their text, by token."""

    def __init__(
        self,
        ids: list[int],
        tokenizer: Any,
        headers: Sequence[tuple[int, int, str]] = (),
        array: Any = None,
    ) -> None:
        self.ids = ids
        self._headers = headers
        known = decode(tokenizer, ids, array) if tokenizer is not None else Decoded("", None)
        self.text, self.ends = known
        self.array = None if type(self.ends) in (list, type(None)) else self.ends
        """The ends as NumPy's array. One by one they are read faster in another view of it."""
        if self.array is not None:
            self.ends = memoryview(self.array)
        self.tokenizer = tokenizer
        self.known = tokenizer is not None

    def start(self, token: int) -> int:
        """Where the text of this token begins."""
        ends = self.ends
        return ends[min(token, len(ends)) - 1] if token and ends else 0

    def span(self, begin: int, end: int) -> str:
        if self.ends is None:
            return self.text if end - begin == len(self.ids) else ""
        return self.text[self.start(begin) : self.start(end)]

    def marks(self, begin: int, ends: Sequence[int], places: Iterable[int]) -> dict[str, str]:
        """Texts of the tokens from `begin` on that have no width in a message, by id. `places` are
        those that may be such."""
        return {
            str(self.ids[begin + i]): text
            for i in places
            if ends[i] == (ends[i - 1] if i else 0)
            and (text := self.span(begin + i, begin + i + 1))
        }

    def mark_at(self, char: int, mark: str) -> int | None:
        """The token that is exactly this mark at this place: a special token, not typed text."""
        if self.ends is None:
            return None
        token = 0 if char == 0 else bisect_left(self.ends, char) + 1
        if self.start(token) != char:
            return None
        while token < len(self.ids) and self.ends[token] == char:  # tokens without width
            token += 1
        whole = token < len(self.ids) and self.ends[token] == char + len(mark)
        return token if whole else None

    def headers(self, begin: int, end: int) -> list[tuple[int, int, str]]:
        """Template headers in a span: (token, first character after it, role)."""
        if self.ends is None:
            return []
        found = [
            (token, self.start(token + length), role)
            for token, length, role in self._headers
            if begin <= token < end
        ]
        told = {t + k for t, length, _ in self._headers for k in range(length)}
        for match in _HEADER.finditer(self.text, self.start(begin), self.start(end)):
            mark = _MARK.match(match.group())
            token = self.mark_at(match.start(), mark.group()) if mark else None
            if token is not None and token not in told and match.lastgroup is not None:
                role = match.group(match.lastgroup)
                found.append((token, match.end(), _ROLES.get(role, role)))
        return sorted(found)

    def footer(self, begin: int, end: int) -> int:
        """Where the content of a span ends and the template's closing marks begin."""
        stop = self.start(end)
        near = max(begin, stop - _NEAR)
        found = self._footer(near, stop)
        return found if found > near + _MARGIN or near == begin else self._footer(begin, stop)

    def _footer(self, begin: int, stop: int) -> int:
        for match in _CLOSING.finditer(self.text, begin, stop):
            special = self.mark_at(match.start(), match.group()) is not None
            if special and _FOOTER.fullmatch(self.text, match.start(), stop):
                return match.start()
        return stop

    def only_marks(self, begin: int, end: int) -> bool:
        """Nothing but white space and special tokens: it belongs to a neighbour."""
        special = set(getattr(self.tokenizer, "all_special_ids", ()))
        return self.ends is not None and all(
            self.ids[i] in special or not self.span(i, i + 1).strip() for i in range(begin, end)
        )


def _spans(
    n: int, sampled: Sequence[Any] | None, turns: Sequence[Any] | None
) -> Sequence[tuple[int, int, bool | None]]:
    """Runs of tokens with the same (sampled, turn)."""
    if turns is None:
        if sampled is None:
            return [(0, n, None)] if n else []
        return runs(sampled)
    keys = [(None if sampled is None else bool(sampled[i]), int(turns[i])) for i in range(n)]
    spans: list[tuple[int, int, bool | None]] = []
    begin = 0
    for i in range(1, n + 1):
        if i == n or keys[i] != keys[begin]:
            spans.append((begin, i, keys[begin][0]))
            begin = i
    return spans


def _continued(pieces: list[_Piece], row: _DecodedRow, begin: int, end: int) -> _Piece:
    """The policy's text, joined to the header (and `<think>`) that the template put before it."""
    if pieces and pieces[-1].role == "assistant" and not pieces[-1].sampled:
        opened = pieces[-1]
        if row.footer(opened.text, begin) == row.start(begin):
            pieces.pop()
            return _Piece(opened.begin, end, opened.text, "assistant", True)
    return _Piece(begin, end, row.start(begin), "assistant", True)


def _add_given(
    pieces: list[_Piece],
    row: _DecodedRow,
    begin: int,
    end: int,
    wrote: bool | None,
    chat: Sequence[Mapping[str, Any]] | None,
) -> None:
    """Add text that the policy did not write, or of which nobody knows: cut at the template's
    headers."""
    headers = row.headers(begin, end)
    first = headers[0][0] if headers else end
    if first > begin and row.only_marks(begin, first):
        if pieces:  # the closing marks of the message before
            pieces[-1] = pieces[-1]._replace(end=first)
            begin = first
        elif headers:  # a beginning-of-text token
            headers[0] = (begin, *headers[0][1:])
            first = begin
    if not headers:
        if begin < end:
            pieces += _by_content(row, begin, end, chat or ()) or [
                _Piece(begin, end, row.start(begin), "unknown", wrote)
            ]
        return
    if first > begin:
        pieces.append(_Piece(begin, first, row.start(begin), "unknown", wrote))
    stops = [token for token, _, _ in headers[1:]] + [end]
    for (token, text, role), stop in zip(headers, stops, strict=True):
        if role == "user" and _TOOL_RESULT.match(row.text[text : row.footer(text, stop)]):
            role = "tool"  # Qwen's template gives tool results the user's header
        pieces.append(_Piece(token, stop, text, role, wrote))


def _by_content(
    row: _DecodedRow, begin: int, end: int, chat: Sequence[Mapping[str, Any]]
) -> list[_Piece]:
    """Cut where the texts of the structured messages stand in the prompt, if they stand there in
    order.

    This is for templates whose headers we do not know.
    """
    if row.ends is None:
        return []
    at, stop = row.start(begin), row.start(end)
    pieces: list[_Piece] = []
    for message in chat:
        text = _chat_text(message).strip()
        place = row.text.find(text, at, stop) if text else -1
        if place < 0:
            return []
        at = place + len(text)
        token = begin
        while token < end and row.start(token + 1) < at:
            token += 1
        pieces.append(_Piece(begin, token + 1, place, str(message.get("role")), False))
        begin = token + 1
    return [*pieces[:-1], pieces[-1]._replace(end=end)] if pieces else []


def _message(row: _DecodedRow, piece: _Piece, streams: Mapping[str, Sequence[Any]]) -> Message:
    begin, end = piece.begin, piece.end
    cut = {name: _cut(values, begin, end) for name, values in streams.items()}
    cut = {name: values for name, values in cut.items() if _is_known(values)}
    message = Message(role=piece.role, sampled=piece.sampled)
    ends = None
    if row.ends is not None:
        stop = max(piece.text, row.footer(piece.text, end))
        before, after = row.text[row.start(begin) : piece.text], row.text[stop : row.start(end)]
        message.content = row.text[piece.text : stop]
        width = stop - piece.text
        ends = row.ends[begin:end]
        first = bisect_right(ends, piece.text)
        last = bisect_left(ends, stop, first)
        if row.array is None:
            inner = [e - piece.text for e in ends[first:last]]
            ends = [0] * first + inner + [width] * (end - begin - last)
        else:
            ends = (row.array[begin:end] - piece.text).clip(0, width)
        marks = row.marks(begin, ends, (*range(first), *range(last, end - begin)))
        aside = (("before", before), ("after", after), ("marks", marks))
        message.meta = {k: v for k, v in aside if v}
    elif row.known:
        message.content = decode(row.tokenizer, row.ids[begin:end]).text
    message.tokens = Tokens(row.ids[begin:end], ends, cut)
    return message


def _is_known(values: list[Any]) -> bool:
    """Is any of them? The last one mostly is."""
    return bool(values) and (values[-1] is not None or values.count(None) < len(values))


def _cut(values: Sequence[Any], begin: int, end: int) -> list[Any]:
    return values[begin:end] if type(values) is list else list(values[begin:end])


# -- structured messages ---------------------------------------------------------------


def _chat_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(p if isinstance(p, str) else str(p.get("text") or "") for p in content)


def _named(messages: list[Message], chat: Sequence[Mapping[str, Any]] | None) -> list[Message]:
    """Names, tool calls and images of the structured prompt, where it is the same conversation.

    Templates add messages at the front (tools, a default system prompt), so the last messages of
    the prompt are compared. If a role differs, nothing is taken over: the tokens say what the model
    saw.
    """
    prompt = [m for m in messages[: _first_sampled(messages)] if m.content or m.role != "assistant"]
    if not chat or len(chat) > len(prompt):
        return messages
    for message, given in zip(prompt[-len(chat) :], chat, strict=True):
        if message.role != str(given.get("role")):
            return messages
    for message, given in zip(prompt[-len(chat) :], chat, strict=True):
        known = from_chat(given)
        message.name, message.tool_call_id = known.name, known.tool_call_id
        message.tool_calls = known.tool_calls
        images = [p for p in known.content or () if isinstance(p, Part) and p.type != "text"]
        if images and isinstance(message.content, str):
            message.content = [Part(type="text", text=message.content), *images]
    return messages


def _first_sampled(messages: list[Message]) -> int:
    return next((i for i, m in enumerate(messages) if m.sampled), len(messages))
