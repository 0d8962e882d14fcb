"""What is shown is what was written: the page's text beside the source, character by character."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import rollscope
from rollscope.formats import Source, find
from rollscope.model import Message, Rollout
from rollscope.model.conversation import text as text_of
from rollscope.model.passages import passages
from server.conftest import Served, serving

from .conftest import PAGE
from .pages import Look, Shoot, at_rest, ready

DATA = Path(__file__).parents[3] / "shared" / "data"
COMPARE = """async ([module, texts]) => {
    const {nodes, prepareMath} = await import(module);
    await prepareMath();
    const problems = [];
    for (const source of texts) {
        const drawn = document.createElement('div');
        drawn.append(nodes(source));
        const count = what => drawn.querySelectorAll(what).length;
        // A formula stands for its TeX, a link for its address, too.
        for (const it of drawn.querySelectorAll('.katex'))
            it.replaceChildren(it.querySelector('annotation').textContent);
        for (const it of drawn.querySelectorAll('a[href]')) it.append(it.getAttribute('href'));
        const ink = text => [...text].filter(c => !/\\s/.test(c));
        const [written, shown] = [ink(source), ink(drawn.textContent)];
        const left = {};
        let at = 0;
        for (const char of written) {
            if (char === shown[at]) at++;
            else left[char] = (left[char] ?? 0) + 1;
        }
        if (at < shown.length)
            problems.push(['shown, not written', shown.slice(at, at + 60).join('')]);
        const heads = [1, 2, 3, 4, 5, 6].reduce((sum, k) => sum + k * count(`h${k}`), 0);
        const known = {
            '*': 2 * count('em') + 4 * count('strong'),
            '#': heads,
            '`': Infinity * count('code') || 0,
            '~': Infinity * count('pre') || 0,
            '|': Infinity * count('table') || 0, '-': Infinity * count('table') || 0,
            ':': Infinity * count('table') || 0, '$': 4 * count('.katex'),
            '\\\\': 2 * count('.katex') + (count('table') ? Infinity : 0),
            '(': count('.katex') + count('a'), ')': count('.katex') + count('a'),
            '[': count('.katex') + count('a'), ']': count('.katex') + count('a'),
        };
        for (const [char, n] of Object.entries(left))
            if (n > (known[char] ?? 0))
                problems.push([`${n} ${char} are not shown`, source.slice(0, 2000)]);
        const begins = new Set(source.split('\\n').map(line => /^\\s*[^\\s]?/.exec(line)[0]));
        for (const it of drawn.querySelectorAll(':scope > p, pre')) {
            if (it.querySelector('strong, em, code, .katex, a')) continue;
            for (const line of it.textContent.split('\\n')) {
                const begin = /^\\s+\\S/.exec(line)?.[0];
                if (begin && !begins.has(begin)) problems.push(['another indentation', line]);
            }
        }
    }
    return problems.slice(0, 20);
}"""


def compared(page: Any, texts: list[str]) -> list[list[str]]:
    assets = PAGE.parent / "assets"
    (module,) = [p for p in assets.glob("markdown-*.js") if "as nodes" in p.read_text()[-300:]]
    found: list[list[str]] = page.evaluate(COMPARE, [f"/assets/{module.name}", texts])
    return found


def written() -> Iterator[str]:
    """Each prose text of the data once, in the pieces in which it is drawn."""
    for source in find(DATA):
        for found in source.read() if isinstance(source, Source) else ():
            for message in found.messages if isinstance(found, Rollout) else ():
                whole = text_of(message)
                for passage in passages(message):
                    ends = [*passage.cuts[1:], passage.end]
                    if passage.kind != "output":
                        yield from (whole[a:b] for a, b in zip(passage.cuts, ends, strict=True))


def test_every_character_of_real_rollouts_is_shown(site: Served, look: Look) -> None:
    if not DATA.is_dir():
        pytest.skip("../shared/data is not here: real rollouts of others")
    page = ready(look(site.url))
    texts = list(dict.fromkeys(written()))
    assert len(texts) > 1_000
    assert compared(page, texts) == []


ODD = [
    "2*3*4 = 24 and f(*args, **kwargs), (*p)*(*q)",
    "def f(x):\n    # half\n    if x:\n        return x / 2\n\n    return f[0](x)",
    "# a comment\nx = 1\n\n#!/bin/sh\n",
    ">>> print('a')\n...     b\na -> b, c <= d, e != f\n---\n***\n===\n",
    "&amp; &lt; \\_ \\* \\\\ <b@c.d> ~~x~~ [a]: b\n[x]: http://y.z",
    "$5 and $6, $HOME/$USER, ${x}$HOME, a_$x$",
    "+ plus\n- minus\n-    return x\n1) one\n7. seven\n3. three",
    "| a | b |\n|---|---|\n| 1 | 2 | 3 |",
    "![a picture](https://x.y/z.png) ```not a fence``` `a\nb`",
    "```python title=x\n    indented\n```",
]


@pytest.mark.parametrize("text", ODD)
def test_nothing_is_left_out_of_what_is_hardly_markup(site: Served, look: Look, text: str) -> None:
    assert compared(ready(look(site.url)), [text]) == []


FORMS = r"""## A plan

Some **strong** words, *stressed* ones and `code`. See [a page](https://example.com).

1. first
3. third, with
   a second line
   - inside

   and a paragraph

- one
- two

| task | reward |
|---|---|
| a | 1 |

```python
def half(x):
    return x / 2
```

Without a fence:

def twice(x):
    # 2*x*1 -> more
    return x != 0 and x * 2

So the answer is $\boxed{42}$, and $$\sum_{i=1}^n i = \frac{n(n+1)}{2}$$

این متن می‌خواهد از راست به چپ باشد.
"""


def test_characters_are_drawn_as_they_are(tmp_path: Path, look: Look, shoot: Shoot) -> None:
    red = "\x1b[38;5;196mred\x1b[0m \x1b[7minverse\x1b[0m \x1b[48;2;0;90;0mgreen\x1b[0m"
    told = [
        Message(role="user", content="می‌خواهم بدانم", sampled=False),
        Message(role="assistant", content=FORMS, sampled=True),
        Message(role="tool", content=red),
    ]
    with rollscope.init(project="p", run="r", dir=tmp_path) as run:
        judged = {"style": r"It **says** \alpha."}
        run.log(Rollout(step=1, task="forms", messages=told, reward_texts=judged))
    with serving(tmp_path) as site:
        for width, height, dark in ((1024, 768, False), (1440, 900, True), (1920, 1080, False)):
            page = ready(look(f"{site.url}/", width=width, height=height, dark=dark))
            expect(page.locator(".prose menclose")).to_have_css("border-top-width", "1px")
            at_rest(page)
            shoot(page, f"forms-{width}{'-dark' if dark else ''}")
        for what in (".cm-content", ".prose p", ".output", "kbd"):
            shape = page.locator(what).first.evaluate(
                """it => {
                    const style = getComputedStyle(it);
                    return style.fontVariantLigatures + style.fontFeatureSettings;
                }"""
            )
            assert re.match("none|.*no-contextual", shape), (what, shape)
            assert '"calt"' not in shape or '"calt" 0' in shape
        colours = page.locator(".output span").evaluate_all(
            "all => all.map(it => [it.style.color, it.style.backgroundColor, it.className])"
        )
        assert colours[0][0].startswith("color-mix(in oklab, rgb(255 0 0)")
        assert colours[1][2] == "ansi-fg-paper ansi-bg-ink"
        assert colours[2][1] == "rgb(0, 90, 0)"
        assert page.locator(".prose").last.get_attribute("dir") == "auto"
        page.keyboard.press("x")
        expect(page.get_by_role("complementary", name="Facts")).to_contain_text(r"**says**·\alpha")
        assert page.wrong == []
