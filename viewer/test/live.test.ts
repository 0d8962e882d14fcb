import { expect, test, vi } from "vitest";
import { follow, type Told } from "../src/lib/live";

/** Stands where the browser's own stands: jsdom has none. */
class Line extends EventTarget {
  static readonly CLOSED = 2;
  static opened: Line[] = [];
  readyState = 0;
  constructor() {
    super();
    Line.opened.push(this);
  }
  close(): void {
    this.readyState = Line.CLOSED;
  }
}

test("a line that the server refused is asked for again, one that only broke is left to the browser", () => {
  vi.useFakeTimers();
  vi.stubGlobal("EventSource", Line);
  const told: Told[] = [];
  const stop = follow("events", (news) => told.push(news));
  const [line] = Line.opened as [Line];
  line.dispatchEvent(new Event("error"));
  vi.runAllTimers();
  expect(Line.opened).toHaveLength(1);
  line.close();
  line.dispatchEvent(new Event("error"));
  vi.runAllTimers();
  expect(Line.opened).toHaveLength(2);
  Line.opened[1]?.dispatchEvent(new Event("open"));
  expect(told.map((news) => news.live)).toEqual([false, false, true]);
  stop();
  vi.runAllTimers();
  expect(Line.opened).toHaveLength(2);
});
