/** Puts rollout text into the page: as markdown, as a terminal's output, or as it is. */
import { emit } from "../state/keys";
import { ansi, hasAnsi, runs, shown, type Run } from "./text";

type Markdown = typeof import("./markdown");
let loaded: Markdown | undefined;
let mathReady = false;

/** Markdown, once its code is here; until then the plain text. `cut`: a block of code goes on before
 * or behind it, so that no more than a piece of that could be copied. */
export function markdown(text: string, cut: Cut = {}): (host: HTMLElement) => () => void {
  return (host) => {
    let gone = false;
    const source = shown(text);
    const draw = (md: Markdown): void => {
      if (gone) return;
      host.replaceChildren(md.nodes(source));
      host.classList.remove("plain");
      copyable(host, cut);
      colour(host);
      emit("drawn", 0);
    };
    const ready = loaded;
    if (ready && (mathReady || !ready.hasMath(source))) draw(ready);
    else {
      host.textContent = source.trim();
      host.classList.add("plain");
      void load(source).then(draw);
    }
    return () => void (gone = true);
  };
}

export interface Cut {
  before?: boolean;
  after?: boolean;
}

/** Each block of code gets a button; `App` hears it. */
function copyable(host: HTMLElement, cut: Cut): void {
  const blocks = [...host.querySelectorAll("pre")];
  for (const block of blocks.slice(cut.before ? 1 : 0, cut.after ? -1 : undefined)) {
    const button = document.createElement("button");
    button.className = "copy-text copy-code";
    button.title = "Copy the code";
    button.setAttribute("aria-label", "Copy the code");
    block.prepend(button);
  }
}

/** The code for markdown: worth having before the first message is here. */
export async function prepare(): Promise<Markdown> {
  return (loaded ??= await import("./markdown"));
}

async function load(source: string): Promise<Markdown> {
  const code = await prepare();
  if (!mathReady && code.hasMath(source)) {
    await code.prepareMath();
    mathReady = true;
  }
  return code;
}

/** Code in a language the reader knows, in colours when they are here. */
function colour(host: HTMLElement): void {
  const blocks = host.querySelectorAll<HTMLElement>('pre > code[class*="language-"]');
  if (blocks.length === 0) return;
  void import("./code").then((code) => {
    for (const block of blocks) code.colour(block);
    emit("drawn", 0);
  });
}

/** Text as it is: terminal colours shown, unseen characters named. `language` colours it. */
export function plain(text: string, language = ""): (host: HTMLElement) => () => void {
  return (host) => {
    let gone = false;
    host.replaceChildren(...(hasAnsi(text) ? ansi(text) : runs(text)).map(element));
    if (language && !hasAnsi(text)) {
      void Promise.all([import("./code"), import("./markdown")]).then(([code]) => {
        if (gone) return;
        const block = document.createElement("code");
        block.className = `language-${language}`;
        block.textContent = shown(text);
        code.colour(block);
        host.replaceChildren(block);
        emit("drawn", 0);
      });
    }
    return () => void (gone = true);
  };
}

function element(run: Run): Node {
  if (!run.hidden && !run.classes && !run.colour && !run.background) return document.createTextNode(run.text);
  const span = document.createElement("span");
  span.textContent = run.text;
  span.className = run.hidden ? "hidden-char" : (run.classes ?? "");
  if (run.colour) span.style.color = run.background ? run.colour : `color-mix(in oklab, ${run.colour} 70%, var(--ink))`; // legible in light and dark
  if (run.background) {
    span.style.backgroundColor = run.background;
    const [r = 0, g = 0, b = 0] = (run.background.match(/\d+/g) ?? []).map(Number);
    if (!run.colour && !run.classes?.includes("ansi-fg-")) span.style.color = 0.3 * r + 0.6 * g + 0.1 * b > 128 ? "black" : "white";
  }
  return span;
}
