import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { mathAt } from "../src/lib/math";
import { nodes, prepareMath } from "../src/lib/markdown";

const HOSTILE = [
  "<script>alert(1)</script>",
  '<img src=x onerror="alert(1)">',
  "<svg onload=alert(1)><script>alert(1)</script></svg>",
  "[x](javascript:alert(1))",
  "[x](data:text/html,<script>alert(1)</script>)",
  "![x](https://evil.example/track.png)",
  "<a href='java&#10;script:alert(1)'>x</a>",
  "<https://ok.example/?a=<script>>",
  "$\\href{javascript:alert(1)}{x}$",
  "$\\htmlData{a=b}{x} \\includegraphics{https://evil.example/x.png}$",
  "$\\def\\x{\\x\\x}\\x$",
  "<math><mtext><table><mglyph><style><!--</style><img src onerror=alert(1)>",
  "<iframe src=//evil.example></iframe><object data=x><embed src=x><base href=//evil.example>",
  "<style>*{background:url(//evil.example)}</style>",
  "<form action=//evil.example><input name=x></form>",
  "```html\n<script>alert(1)</script>\n```",
];

const ELEMENTS = "script, img, svg, iframe, object, embed, base, style, form, input, link, meta, [src], [style]";

test.each(HOSTILE)("nothing in %j can act", async (text) => {
  await prepareMath();
  const host = document.createElement("div");
  host.append(nodes(text));
  expect(host.querySelectorAll(ELEMENTS).length).toBe(0);
  for (const element of host.querySelectorAll("*")) {
    for (const { name, value } of element.attributes) {
      expect(name.startsWith("on")).toBe(false);
      if (name === "href") expect(value).toMatch(/^https?:\/\//);
    }
  }
});

test("math is drawn, money is not math", async () => {
  await prepareMath();
  const host = document.createElement("div");
  host.append(nodes("It costs $5 or $6, and $x^2$ is \\(y\\)."));
  expect(host.querySelectorAll("math").length).toBe(2);
  expect(mathAt("$5 and $6", 0)).toBeNull();
  expect(mathAt("$$a+b$$", 0)).toEqual({ source: "a+b", display: true, end: 7 });
});

test("names and ends of lines stay as they were written", () => {
  const host = document.createElement("div");
  host.append(nodes("call __init__ of my_own_class\n% ls\n**bold** and *stressed*"));
  expect(host.textContent?.trim()).toBe("call __init__ of my_own_class\n% ls\nbold and stressed");
  expect(host.querySelectorAll("strong, em").length).toBe(2);
});

test("tables, code and lists are shown as such", () => {
  const host = document.createElement("div");
  host.append(nodes("| a | b |\n|---|---|\n| 1 | 2 |\n\n- x\n\n`code`"));
  expect(host.querySelectorAll("table td, li, code").length).toBe(4);
});

test("no component turns text into markup by itself", () => {
  const all = readdirSync("src", { recursive: true, encoding: "utf8" }).filter((name) => /\.(svelte|ts)$/.test(name));
  expect(all.length).toBeGreaterThan(30);
  for (const name of all) expect(readFileSync(`src/${name}`, "utf8"), name).not.toMatch(/\{@html|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(/);
});

test.each(["2*3*4", "f(*args, **kwargs)", "(*p)*(*q)", "a_b_c", "# half\nx = x / 2", "$HOME/$USER", "a_$x$", "+ plus", "    x = 1", "f[0](x)"])(
  "%j is hardly markup, and stays as it is",
  async (text) => {
    await prepareMath();
    const host = document.createElement("div");
    host.append(nodes(text));
    expect(host.querySelectorAll("em, h1, math, code, a").length).toBe(0);
    expect(host.textContent?.replace(/\n$/, "")).toBe(text);
  },
);
