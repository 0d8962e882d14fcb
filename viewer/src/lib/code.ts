/** Code colours, loaded when the first code block is in sight. */
import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import cpp from "highlight.js/lib/languages/cpp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import markdown from "highlight.js/lib/languages/markdown";
import python from "highlight.js/lib/languages/python";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { clean } from "./markdown";

const KNOWN = { bash, cpp, css, diff, go, java, javascript, json, markdown, python, rust, sql, typescript, xml, yaml };
for (const [name, language] of Object.entries(KNOWN)) hljs.registerLanguage(name, language);
hljs.registerAliases(["sh", "shell", "console"], { languageName: "bash" });
hljs.registerAliases(["html", "svg"], { languageName: "xml" });

const MOST = 60_000; // colouring longer blocks would hold up the page

/** Colours a `<code>` element whose class names its language. */
export function colour(code: HTMLElement): void {
  const text = code.textContent ?? "";
  const name = /language-([\w+#-]+)/.exec(code.className)?.[1] ?? "";
  if (text.length > MOST || !hljs.getLanguage(name)) return;
  code.replaceChildren(clean(hljs.highlight(text, { language: name, ignoreIllegals: true }).value));
}
