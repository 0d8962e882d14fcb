/** The query bar's editor: one line, completion, error marks. Loaded after the first paint.
 *
 * It lives in a shadow root: there CodeMirror uses constructed style sheets, which the strict
 * Content-Security-Policy allows, instead of style elements, which it does not. */
import { acceptCompletion, autocompletion, completionKeymap, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { EditorState, Prec, RangeSetBuilder, StateEffect, StateField } from "@codemirror/state";
import { Decoration, EditorView, keymap, placeholder, ViewPlugin, type DecorationSet, type ViewUpdate } from "@codemirror/view";
import type { Api } from "../api/client";
import type { ListedKey, NamedKey } from "../api/types";
import { quoted } from "./query";

export interface Editor {
  set(text: string): void;
  text(): string;
  fail(problem: { message: string; start: number; end: number } | null): void;
  focus(): void;
}

const PARTS = /(-?[A-Za-z_][\w.-]*:)("(?:\\.|[^"\\])*"?|\/(?:\\.|[^/\\])*\/?i?|[^\s()]*)|("(?:\\.|[^"\\])*"?)|(\/(?:\\.|[^/\\])+\/i?)|\b(OR|AND|NOT)\b/gu;

/** What is wrong in the query, underlined until it is asked again. */
const wrong = StateEffect.define<{ from: number; to: number; message: string } | null>();
const underlined = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update: (marks, change) => {
    for (const effect of change.effects) {
      if (!effect.is(wrong)) continue;
      const { from = 0, to = 0, message = "" } = effect.value ?? {};
      return from < to ? Decoration.set(Decoration.mark({ class: "wrong", attributes: { title: message } }).range(from, to)) : Decoration.none;
    }
    return marks.map(change.changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

const paint = ViewPlugin.fromClass(
  class {
    decorations: DecorationSet;
    constructor(view: EditorView) {
      this.decorations = colours(view);
    }
    update(update: ViewUpdate): void {
      if (update.docChanged) this.decorations = colours(update.view);
    }
  },
  { decorations: (plugin) => plugin.decorations },
);

function colours(view: EditorView): DecorationSet {
  const builder = new RangeSetBuilder<Decoration>();
  const add = (from: number, text: string, name: string): void => {
    if (text) builder.add(from, from + text.length, Decoration.mark({ class: name }));
  };
  for (const match of view.state.doc.toString().matchAll(PARTS)) {
    const [all, key, value] = match;
    if (key !== undefined) {
      add(match.index, key, "q-key");
      add(match.index + key.length, value ?? "", "q-value");
    } else add(match.index, all, match[5] ? "q-word" : "q-text");
  }
  return builder.finish();
}

const theme = EditorView.theme({
  "&": { fontSize: "13px", color: "var(--ink)", width: "100%" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", fontVariantLigatures: "none", lineHeight: "28px", overflow: "hidden" },
  ".cm-content": { padding: "0", caretColor: "var(--accent)" },
  ".cm-line": { padding: "0" },
  ".cm-placeholder": { color: "var(--faint)", fontFamily: "var(--sans)" },
  ".q-key": { color: "var(--accent-ink)" },
  ".q-value": { color: "var(--good-ink)" },
  ".q-text": { color: "var(--warn-ink)" },
  ".q-word": { color: "var(--faint)", fontWeight: "600" },
  ".wrong": { textDecoration: "underline wavy var(--bad) 1px", textUnderlineOffset: "4px" },
  ".cm-cursor": { borderLeftColor: "var(--accent)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { background: "var(--accent-wash) !important" },
  ".cm-tooltip": { border: "1px solid var(--line-strong)", borderRadius: "8px", background: "var(--panel)", boxShadow: "var(--shadow)", overflow: "hidden" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--sans)", fontSize: "12px", maxHeight: "300px" },
  ".cm-tooltip-autocomplete > ul > li": { padding: "3px 10px !important", color: "var(--ink)" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { background: "var(--accent-wash) !important", color: "var(--accent-ink) !important" },
  ".cm-completionDetail": { marginLeft: "12px", color: "var(--faint)", fontStyle: "normal" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "650" },
});

export function edit(
  host: HTMLElement,
  api: Api,
  text: string,
  on: { names: () => NamedKey[]; submit: (text: string) => void; leave: () => void; change: () => void },
): Editor {
  const root = host.attachShadow({ mode: "open" });
  const hold = document.createElement("div");
  root.append(hold);
  let keys: ListedKey[] | undefined;
  const known = async (): Promise<ListedKey[]> => (keys ??= (await api.keys()).keys);

  async function complete(context: CompletionContext): Promise<CompletionResult | null> {
    const value = context.matchBefore(/[\w-]+(?:\.(?:"(?:\\.|[^"\\])*"|[^\s:.,()"]+))*:[^\s()]*/u);
    if (value) {
      const cut = /^(?:"(?:\\.|[^"\\])*"|[^":])*/u.exec(value.text)?.[0].length ?? 0;
      const name = value.text.slice(0, cut).replace(/^-/, "");
      const prefix = value.text.slice(cut + 1).replaceAll('"', "");
      const { values } = await api.values(name, prefix).catch(() => ({ values: [] }));
      const options = values.map((v) => ({ label: v.value === null ? "none" : quoted(v.value), detail: v.count.toLocaleString("en-US") }));
      return { from: value.from + cut + 1, options, filter: false };
    }
    const word = context.matchBefore(/[\w.]+/u);
    if (!word && !context.explicit) return null;
    const own = on.names().map(({ key, kind, share }) => ({ label: `${key}:`, detail: `${kind}, in ${Math.ceil(100 * share)} % of rollouts`, type: "keyword" }));
    const options = (await known()).map((key) => ({ label: `${key.name.replace(".*", ".")}${key.name.endsWith(".*") ? "" : ":"}`, detail: key.doc, type: "keyword" }));
    return { from: word?.from ?? context.pos, options: [...options, ...own], validFor: /^[\w.]*$/u };
  }

  const view = new EditorView({
    parent: hold,
    root,
    state: EditorState.create({
      doc: text,
      extensions: [
        Prec.highest(
          keymap.of([
            { key: "Tab", run: acceptCompletion },
            { key: "Enter", run: (v) => acceptCompletion(v) || (on.submit(v.state.doc.toString()), true) },
            { key: "Escape", run: () => (on.leave(), true) },
          ]),
        ),
        history(),
        keymap.of([...completionKeymap, ...historyKeymap, ...defaultKeymap]),
        autocompletion({ override: [complete], icons: false, activateOnTyping: true }),
        placeholder('reward:<0.2 step:100..200 fate:dropped tool:search "exact words" /regex/ -error:timeout'),
        EditorState.transactionFilter.of((tr) => (tr.newDoc.lines > 1 ? [] : tr)),
        EditorView.contentAttributes.of({ "aria-label": "Query", spellcheck: "false" }),
        EditorView.updateListener.of((u) => u.docChanged && on.change()),
        underlined,
        paint,
        theme,
      ],
    }),
  });
  return {
    set: (next) => {
      if (next !== view.state.doc.toString()) view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } });
    },
    text: () => view.state.doc.toString(),
    fail: (problem) => {
      const size = view.state.doc.length;
      const mark = problem && { from: Math.min(problem.start, size), to: Math.min(Math.max(problem.end, problem.start + 1), size), message: problem.message };
      view.dispatch({ effects: wrong.of(mark) });
    },
    focus: () => {
      view.focus();
      view.dispatch({ selection: { anchor: view.state.doc.length } });
    },
  };
}
