/** A worker of a bundle's page: looks for terms in the whole text of every rollout. */
import { searched, type TextTerm } from "./whole";

export interface Ask {
  root: string;
  files: number;
  terms: TextTerm[];
}

/** For each term the places (row numbers) of the rollouts it is found in, among those before
 * `end`: what was read since the last word. */
export type Found = { error: string } | { places: number[][]; end: number; file: number };

interface Texts {
  first: number;
  said: [role: string, text: string | null][][];
}

addEventListener("message", (event: MessageEvent<Ask>) => {
  find(event.data).catch((error: unknown) => postMessage({ error: String(error) } satisfies Found));
});

async function find({ root, files, terms }: Ask): Promise<void> {
  const wanted = terms.map(searched);
  for (let k = 0; k < files; k++) {
    const places: number[][] = terms.map(() => []);
    const answer = await fetch(`${root}texts/${k}.json`);
    if (!answer.ok) throw new Error(`texts/${k}.json: ${answer.status}`);
    const texts = (await answer.json()) as Texts;
    texts.said.forEach((messages, i) => {
      wanted.forEach((term, t) => {
        if (messages.some(([role, text]) => term(text, role))) places[t]?.push(texts.first + i);
      });
    });
    postMessage({ places, end: texts.first + texts.said.length, file: k } satisfies Found);
  }
}
