"""Speed of the viewer on long messages: a part of `browser.py`.

python long.py        only these: a JSON object on stdout, in milliseconds and megabytes

Each time is taken inside the page, from what a person does until what they want is drawn.
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from served import serving

TOKENS = 32_000
STREAMS = ("logprob", "train_logprob", "ref_logprob", "advantage", "entropy")
THOUGHTS = 5
"""As many are opened, so that none comes out of a cache."""
WORDS = ("so", "then", "we", "have", "one")
NEEDLE = "the pin"
HUGE = 50_000_000

TAKEN = """async () => {{
    const frame = () => new Promise(done => requestAnimationFrame(done));
    const start = performance.now();
    ({act})();
    while (!({done})()) {{
        if (performance.now() - start > 60_000) throw new Error("it never came to be");
        await frame();
    }}
    await frame();
    return performance.now() - start;
}}"""


def make(folder: str) -> None:
    """A run with long messages, in the form in which files stay."""
    import rollscope
    from reading import settle
    from rollscope.model import Message, Rollout
    from rollscope.store import paths
    from rollscope.store.seal.compact import compact

    ask = Message(role="user", content="What is 6 * 7?")
    same = " ".join(random.Random(0).choice(WORDS) for _ in range(TOKENS))
    told = {f"thought-{n}": _thought(n) for n in range(THOUGHTS)}
    told |= {name: Message(role="tool", content=log) for name, log in _logs()}
    for name in ("alpha", "beta"):  # as long as a thought, and one word of each its own
        text = f"{same[:100_000]} {name} {same[100_000:]}"
        told[name] = Message(role="assistant", content=text, sampled=True)
    with rollscope.init(project="bench", run="long", dir=folder) as run:
        for task, message in told.items():
            run.log(Rollout(key=task, step=1, task=task, reward=1.0, messages=[ask, message]))
    directory = paths.run_dir(Path(folder), "bench", "long")
    settle(directory)
    compact(directory, grace=0.0)


def _thought(seed: int) -> Any:
    """130 kB of thinking in 32,000 tokens with five streams, and an answer."""
    from rollscope.model import Message, Tokens

    chance = random.Random(seed)
    pieces = [chance.choice(WORDS) + ("\n\n" if n % 60 == 59 else " ") for n in range(TOKENS)]
    head, ends = "<think>", []
    at = len(head)
    for piece in pieces:
        at += len(piece)
        ends.append(at)
    streams = {name: [chance.random() for _ in pieces] for name in STREAMS}
    tokens = Tokens(list(range(TOKENS)), ends=ends, streams=streams)
    text = f"{head}{''.join(pieces)}</think>\n\nIt is 42."
    return Message(role="assistant", content=text, sampled=True, tokens=tokens)


def _logs() -> Iterator[tuple[str, str]]:
    for name, size in (("log", 5_000_000), ("huge", HUGE)):
        lines = [f"{n} step of a long log that a tool wrote\n" for n in range(size // 45)]
        lines[len(lines) // 2] = f"here lies {NEEDLE}\n"
        yield name, "".join(lines)


def measure(page: Any, flags: list[str]) -> dict[str, float]:
    """One visit: open, jump, find, compare; then a message of 50 MB."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        make(folder)
        with serving("rollscope", folder) as server:
            page.goto(server.url)
            page.locator("article.card .content").first.wait_for()
            found = {
                "long_open_ms": statistics.median(_open(page, server.url)),
                "long_jump_ms": statistics.median(_jump(page)),
                "long_find_ms": statistics.median(_find(page, server.url)),
                "long_compare_ms": max(_compare(page, server.url, *two) for two in _pairs()),
            }
            browser = page.context.browser.browser_type.launch(
                executable_path=shutil.which("chromium"), args=flags
            )  # its own: memory of what was shown before goes when the browser likes
            found["long_memory_mb"] = _huge(browser, server.url)
            browser.close()
            page.goto("about:blank")
    return found


def _open(page: Any, url: str) -> Iterator[float]:
    """From a click on a link to the thought, token by token, to its first tokens."""
    for n in range(THOUGHTS):
        _rest(page, f"{url}/?id={_id(page, 'log')}&view=tokens")
        link = f"?id={_id(page, f'thought-{n}')}&view=tokens&stream=logprob"
        yield _taken(page, _click(link), "() => document.querySelector('[data-message] [data-i]')")


def _jump(page: Any) -> Iterator[float]:
    """Along the strip, from one place to another far away that is not loaded."""
    page.locator(".strip .head .end").wait_for()
    page.wait_for_timeout(1500)
    for n in (29_000, 3_100, 17_200, 24_600, 9_300, 31_500, 13_900, 6_700, 21_400):
        act = f"""() => {{
            const box = document.querySelector('.strip .plot').getBoundingClientRect();
            const at = {{offsetX: 0, bubbles: true, clientX: box.left + box.width * {n / TOKENS}}};
            document.querySelector('.strip .plot').dispatchEvent(new MouseEvent('click', at));
        }}"""
        done = f"""() => {{
            const at = document.querySelector('.tok.at');
            if (!at || Math.abs(at.dataset.i - {n}) > 100) return false;
            const {{top}} = at.getBoundingClientRect();
            return top > 0 && top < innerHeight;
        }}"""
        yield _taken(page, act, done)
        page.wait_for_timeout(300)


def _find(page: Any, url: str) -> Iterator[float]:
    """From the last letter typed to the number of hits."""
    _rest(page, f"{url}/?id={_id(page, 'log')}")
    for word, count in ((NEEDLE, 1), ("step of a long", 2000), (f"lies {NEEDLE}", 1)):
        act = f"""() => {{
            const input = document.querySelector('.find input');
            input.value = {json.dumps(word)};
            input.dispatchEvent(new Event('input', {{bubbles: true}}));
        }}"""
        wanted = f"{count:,} hit"
        done = f"() => document.querySelector('.find').innerText.includes({json.dumps(wanted)})"
        yield _taken(page, act, done)
        _rest(page, f"{url}/?id={_id(page, 'log')}")


def _pairs() -> Iterator[tuple[str, str]]:
    yield "alpha", "beta"
    yield from ((f"thought-{n}", f"thought-{n + 1}") for n in range(0, THOUGHTS - 1, 2))


def _compare(page: Any, url: str, first: str, second: str) -> float:
    """From a click on a link to where they part, in sight."""
    _rest(page, f"{url}/?id={_id(page, 'log')}")
    link = f"?s=compare&ids={_id(page, first)},{_id(page, second)}"
    return _taken(page, _click(link), "() => document.querySelector('.turn.first .side mark')")


def _huge(browser: Any, url: str) -> float:
    """What a tab's process holds of its own at most, while 50 MB are read and searched."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(180_000)
    session = browser.new_browser_cdp_session()
    page.goto(url)
    _rest(page, f"{url}/?id={_id(page, 'huge')}&fold=-text:1.0")
    box, most = page.locator(".scroll.cards"), 0.0
    for part in range(21):
        box.evaluate("(box, at) => box.scrollTo(0, box.scrollHeight * at)", part / 20)
        page.wait_for_timeout(300)
        most = max(most, _held(session))
    page.locator(".find input").fill(NEEDLE)
    page.locator(".find").get_by_text("1 hit").wait_for()
    page.locator(".find input").press("Enter")
    page.wait_for_timeout(2000)
    return max(most, _held(session))


def _held(session: Any) -> float:
    """Megabytes that belong to the process of the tab alone."""
    found = session.send("SystemInfo.getProcessInfo")["processInfo"]
    tabs = [process["id"] for process in found if process["type"] == "renderer"]
    lines = [Path(f"/proc/{pid}/status").read_text() for pid in tabs]
    return max(int(text.split("RssAnon:")[1].split()[0]) / 1e3 for text in lines)


def _id(page: Any, task: str) -> str:
    asked = "async url => (await (await fetch(url)).json()).rows[0].id"
    return str(page.evaluate(asked, f"/api/rollouts?q=task:{task}"))


def _rest(page: Any, url: str) -> None:
    page.goto(url)
    page.locator("article.card .content").first.wait_for()
    page.wait_for_timeout(1500)


def _click(link: str) -> str:
    return f"""() => {{
        const link = Object.assign(document.createElement('a'), {{text: 'x'}});
        link.setAttribute('href', {json.dumps(link)});
        document.body.append(link);
        link.click();
        link.remove();
    }}"""


def _taken(page: Any, act: str, done: str) -> float:
    return float(page.evaluate(TAKEN.format(act=act, done=done)))


if __name__ == "__main__":
    from browser import FLAGS, opened

    with opened() as tab:
        print(json.dumps({name: round(value, 1) for name, value in measure(tab, FLAGS).items()}))
