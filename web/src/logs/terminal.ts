import { FitAddon } from "@xterm/addon-fit";
import { SearchAddon } from "@xterm/addon-search";
import { Terminal as XTerm } from "@xterm/xterm";
import { ApiError, type LogOf, readLog } from "../api.ts";
import { currentSession, otherSessionThan } from "../credential.ts";
import { cssColor } from "../ui/theme.ts";

const kept = 50_000; // lines
const tail = 10_000; // initial lines
const smooth = 200; // ms, duration of a scroll by the wheel
const pause = 2000; // ms until a broken stream is opened again

export type Terminal = {
  follow: (on: boolean) => void;
  find: (text: string, where: "here" | "on" | "back") => void;
  close: () => void;
};

type Say = { state: (text: string) => void; following: (on: boolean) => void };

function theme() {
  return {
    background: cssColor("--log-ground"),
    foreground: cssColor("--log-text"),
    cursor: cssColor("--log-ground"),
    selectionBackground: cssColor("--log-mark"),
    selectionInactiveBackground: cssColor("--log-mark"),
  };
}

/** openTerminal shows a log in an element and follows it until close. */
export function openTerminal(place: HTMLElement, of: LogOf, live: boolean, say: Say): Terminal {
  const term = new XTerm({
    convertEol: true,
    disableStdin: true,
    scrollback: kept,
    fontSize: 12.5,
    fontFamily: "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace",
    minimumContrastRatio: 4.5,
    theme: theme(),
  });
  const fit = new FitAddon();
  const search = new SearchAddon();
  term.loadAddon(fit);
  term.loadAddon(search);
  term.open(place);
  term.textarea?.setAttribute("aria-label", "Log");
  const resized = new ResizeObserver(() => fit.fit());
  resized.observe(place);

  let following = true;
  const atEnd = () => term.buffer.active.viewportY >= term.buffer.active.baseY;
  // The terminal stops following when the user scrolls up and follows again at the end. This reports the
  // change.
  const look = () => {
    if (following === atEnd()) return;
    following = atEnd();
    say.following(following);
  };
  const scrolled = () => setTimeout(look, smooth);
  place.addEventListener("wheel", scrolled, { passive: true });

  const control = new AbortController();
  void read(term, of, live, control.signal, say.state, look);
  return {
    follow: (on) => {
      if (on) term.scrollToBottom();
      else if (atEnd()) term.scrollLines(-1);
      following = on;
    },
    find: (text, where) => {
      if (!text) search.clearDecorations();
      else if (where === "back") search.findPrevious(text);
      else search.findNext(text, { incremental: where === "here" });
    },
    close: () => {
      control.abort();
      resized.disconnect();
      place.removeEventListener("wheel", scrolled);
      term.dispose();
    },
  };
}

async function read(
  term: XTerm,
  of: LogOf,
  live: boolean,
  signal: AbortSignal,
  say: (text: string) => void,
  written: () => void,
) {
  for (;;) {
    // A broken stream is read again from the start of its tail, so the old lines are removed.
    term.reset();
    let any = false;
    const session = currentSession();
    try {
      say("reading");
      await readLog(of, { tail, follow: live, signal }, (bytes) => {
        any = true;
        say(live ? "live" : "reading");
        term.write(bytes, written);
      });
      say(any ? "the log has ended" : "nothing was written");
      return;
    } catch (err) {
      if (signal.aborted) return;
      if (err instanceof ApiError && err.code === 401) {
        say(err.message);
        await otherSessionThan(session);
      } else if (err instanceof ApiError && err.code !== 0) {
        say(err.message);
        return;
      } else {
        say("the stream broke, trying again");
        await new Promise((again) => setTimeout(again, pause));
      }
      if (signal.aborted) return;
    }
  }
}
