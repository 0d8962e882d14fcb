/** A worker of a bundle's page: looks for terms in the whole text of every rollout. */
import { searched, type Term } from "./whole";

export interface Ask {
  root: string;
  files: number;
  terms: string[];
}

/** For each term the places (row numbers) of the rollouts it is found in. */
export type Found = { error: string } | { places: number[][] };

interface Texts {
  first: number;
  said: [role: string, text: string][][];
}

addEventListener("message", (event: MessageEvent<Ask>) => {
  find(event.data).then(
    (places) => postMessage({ places } satisfies Found),
    (error: unknown) => postMessage({ error: String(error) } satisfies Found),
  );
});

async function find({ root, files, terms }: Ask): Promise<number[][]> {
  const wanted: Term[] = terms.map(searched);
  const places: number[][] = terms.map(() => []);
  for (let k = 0; k < files; k++) {
    const answer = await fetch(`${root}texts/${k}.json`);
    if (!answer.ok) throw new Error(`texts/${k}.json: ${answer.status}`);
    const texts = (await answer.json()) as Texts;
    texts.said.forEach((messages, i) => {
      wanted.forEach((term, t) => {
        if (messages.some(([role, text]) => (term.role === null || term.role === role) && term.pattern.test(text))) places[t]?.push(texts.first + i);
      });
    });
  }
  return places;
}
