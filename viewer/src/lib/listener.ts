/** A worker that all tabs share. It alone holds the connection to the server, whose address is its name. */
import { follow, type Told } from "./live";

const tabs = new Set<MessagePort>(); // of tabs that were closed, too: telling them does nothing
let last: Told | undefined;

addEventListener("connect", (event) => {
  const port = (event as MessageEvent).ports[0];
  if (!port) return;
  tabs.add(port);
  if (last) port.postMessage(last);
});

follow(self.name, (told) => {
  last = { ...last, ...told };
  for (const port of tabs) port.postMessage(told);
});
