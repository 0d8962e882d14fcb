/** What a person clicks is done, also while answers arrive and move or renew what is under the pointer.
 *
 * What was pressed is what is meant: not what has come under the pointer until it was released. And what is
 * pale, because it still is of the question before (`.old`), is clicked when its own answer is there. */

const CONTROLS = "a[href], button, summary, [role=option]";
/** Of the question before; but what chooses among facets and steps means the next question at once. */
const STALE = ".old:not(.facets, .ribbon)";
const STILL = 4; // pixels: who moves further draws or selects

interface Pressed {
  control: HTMLElement;
  href: string | null;
  x: number;
  y: number;
}

const controlOf = (event: Event): HTMLElement | null => (event.target instanceof Element ? event.target.closest<HTMLElement>(CONTROLS) : null);

/** What it says, without its numbers: those are what changes. */
const nameOf = (control: HTMLElement): string => `${control.tagName} ${control.getAttribute("aria-label") ?? control.textContent ?? ""}`.replaceAll(/[\d.,%\s]+/g, " ");

/** Its place among those of the same name. */
const alike = (name: string): HTMLElement[] => [...document.querySelectorAll<HTMLElement>(`main :is(${CONTROLS})`)].filter((control) => nameOf(control) === name);

/** Goes to this address of the page; says that something is gone. */
export interface Acts {
  visit: (href: string) => void;
  say: (text: string) => void;
}

/** Listens on the window; returns how to stop. */
export function presses(acts: Acts): () => void {
  let pressed: Pressed | null = null;
  let waiting: ReturnType<typeof setInterval> | undefined;

  const down = (event: PointerEvent): void => {
    const control = event.button === 0 ? controlOf(event) : null;
    pressed = control && { control, href: control.getAttribute("href"), x: event.clientX, y: event.clientY };
  };

  const click = (event: MouseEvent): void => {
    clearInterval(waiting); // the last click counts
    if (!event.isTrusted || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const meant = pressed && Math.hypot(event.clientX - pressed.x, event.clientY - pressed.y) <= STILL ? pressed : null;
    pressed = null;
    const control = meant?.control ?? controlOf(event);
    if (!control) return;
    const stop = (): void => {
      event.preventDefault();
      event.stopImmediatePropagation();
    };
    if (meant?.href?.startsWith("?") && meant.href !== control.getAttribute("href") && !control.closest(STALE)) {
      stop();
      acts.visit(meant.href); // the row shows another one by now
    } else if (control.closest(STALE)) {
      stop();
      later(control);
    } else if (meant && control !== controlOf(event) && control.isConnected) {
      stop();
      control.click();
    }
  };

  function later(control: HTMLElement): void {
    const name = nameOf(control);
    const place = alike(name).indexOf(control);
    waiting = setInterval(() => {
      if (control.isConnected && control.closest(STALE)) return;
      clearInterval(waiting);
      const now = control.isConnected ? control : alike(name)[place];
      if (now) now.click();
      else acts.say("that is not there any more");
    }, 50);
  }

  addEventListener("pointerdown", down, true);
  addEventListener("click", click, true);
  return () => {
    clearInterval(waiting);
    removeEventListener("pointerdown", down, true);
    removeEventListener("click", click, true);
  };
}
