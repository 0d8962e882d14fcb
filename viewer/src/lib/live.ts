/** The connection by which the server sends news. */
import type { News } from "../api/types";

export interface Told {
  /** Is there a line to the server? */
  live: boolean;
  news?: News;
}

/** Milliseconds until a server that refused the line (it wants another token) is asked again. */
const AGAIN = 5000;

/** Listens at an address; returns how to stop. */
export function follow(address: string, tell: (told: Told) => void): () => void {
  let source: EventSource;
  let again: ReturnType<typeof setTimeout> | undefined;
  const open = (): void => {
    source = new EventSource(address);
    source.addEventListener("open", () => tell({ live: true }));
    source.addEventListener("news", (event) => tell({ live: true, news: JSON.parse((event as MessageEvent<string>).data) as News }));
    source.addEventListener("error", () => {
      tell({ live: false });
      // The browser reopens a connection that broke, but not one that was refused.
      if (source.readyState === EventSource.CLOSED) again = setTimeout(open, AGAIN);
    });
  };
  open();
  return () => {
    clearTimeout(again);
    source.close();
  };
}

/** Listens once for all tabs of this browser, which opens six lines to a server and no more: were
 * each tab to hold one, the sixth could not ask for anything, and the seventh would not open. */
export function followTogether(address: string, tell: (told: Told) => void): () => void {
  if (typeof SharedWorker === "undefined") return follow(address, tell);
  const worker = new SharedWorker(new URL("./listener.ts", import.meta.url), { type: "module", name: address });
  let stop = (): void => worker.port.close();
  worker.port.onmessage = (event: MessageEvent<Told>) => tell(event.data);
  worker.onerror = () => (stop = follow(address, tell)); // its script could not be loaded
  return () => stop();
}
