/** Draws token spans directly: a message may have thousands, and each is one element. */
import type { TokenBlock } from "../api/types";
import { count } from "./num";
import { nameOf, shown } from "./text";
import { pieces, shade, type Token, valuesOf, visible } from "./tokens";

export interface Look {
  /** Whitespace and special tokens visible. */
  raw: boolean;
  stream: string;
  span: number;
}

export function drawTokens(host: HTMLElement, block: TokenBlock, look: Look): void {
  const { tokens, rest } = pieces(block);
  const values = look.stream ? valuesOf(block, look.stream) : undefined;
  const out = document.createDocumentFragment();
  let chunk = document.createElement("div");
  tokens.forEach((token, i) => {
    const span = document.createElement("span");
    span.dataset["i"] = String(block.start + i);
    const hidden = token.text === "";
    span.className = hidden ? "tok bare" : i % 2 ? "tok odd" : "tok";
    span.textContent = hidden ? unseen(token) : look.raw ? visible(shown(token.text)) : shown(token.text);
    if (hidden) span.title = token.mark ? "a token of the chat template" : "a token without text of its own: special, or part of a character";
    if (look.stream) paint(span, look, values?.[i]);
    chunk.append(span);
    if (i % 400 === 399) {
      chunk.className = "chunk";
      out.append(chunk);
      chunk = document.createElement("div");
    }
  });
  chunk.className = "chunk";
  out.append(chunk);
  if (rest) {
    const tail = document.createElement("span");
    tail.className = "untokened";
    tail.title = "text without tokens";
    tail.textContent = look.raw ? visible(shown(rest)) : shown(rest);
    out.append(tail);
  }
  if (block.left) out.append(`… ${count(block.left)} more characters without tokens`);
  host.replaceChildren(out);
}

/** A token that the message's text leaves out: what it says if that is known, else its number. */
function unseen(token: Token): string {
  if (token.mark) return visible(shown(token.mark)).replaceAll("\n", "");
  return token.id === null ? "∅" : `⟨${token.id}⟩`;
}

function paint(span: HTMLElement, look: Look, value: number | string | null | undefined): void {
  const { side, strength } = shade(look.stream, value, look.span);
  if (side === "missing") span.classList.add("none");
  else if (side !== "none" && strength > 0.02) span.style.backgroundColor = `hsl(var(--${side}) / ${(strength * 0.62).toFixed(3)})`;
}

/** A text that has no tokens, raw: every character that cannot be seen is written out. */
export function drawRaw(host: HTMLElement, text: string): void {
  host.replaceChildren(visible(shown(text)));
}

export { nameOf };
