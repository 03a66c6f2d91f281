// The log of an attempt or a container in a terminal, with colors and fast scrolling through megabytes.
import { type ReactNode, useEffect, useRef, useState } from "react";
import type { Attempt } from "../api.ts";
import { type ApiError, type LogOf, readLogText } from "../api.ts";
import { useParams } from "../data/route.ts";
import { hasIndex, parseIndex } from "../pages/indexes.ts";
import { openTerminal, type Terminal } from "./terminal.ts";
import "@xterm/xterm/css/xterm.css";

const kept = 60_000; // ms, until the browser has certainly begun to save

/** A task that runs a range of an array has indexes: the reader can select one of them. */
type Props = { of: LogOf; attempts?: Attempt[]; indexes?: string; live: boolean; children?: ReactNode };

export default function LogView({ of, attempts, indexes, live, children }: Props) {
  const [params, change] = useParams();
  const chosen = Number(params.get("attempt")) || undefined;
  const place = useRef<HTMLDivElement>(null);
  const terminal = useRef<Terminal>(undefined);
  const [follow, setFollow] = useState(true);
  const [state, setState] = useState("");
  const index = parseIndex(params.get("index") ?? "");
  const which: LogOf = of.kind === "tasks" ? { ...of, attempt: chosen, index: indexes ? index : undefined } : of;
  const key = JSON.stringify(which);
  const latest = attempts?.at(-1)?.number;

  // Each attempt has its own log. The latest one is shown unless the user chose another.
  // biome-ignore lint/correctness/useExhaustiveDependencies: the key and the latest attempt say which log it is
  useEffect(() => {
    if (!place.current) return;
    const opened = openTerminal(place.current, which, live, { state: setState, following: setFollow });
    terminal.current = opened;
    return () => opened.close();
  }, [key, chosen ? undefined : latest, live]);
  const doFollow = (on: boolean) => {
    setFollow(on);
    terminal.current?.follow(on);
  };

  return (
    <div className="log">
      <div className="toolbar" role="toolbar" aria-label="Log">
        {attempts && attempts.length > 1 && (
          <label>
            Attempt{" "}
            <select value={chosen ?? ""} onChange={(event) => change({ attempt: event.target.value })}>
              <option value="">latest</option>
              {attempts.map(({ number, state: ended }) => (
                <option key={number} value={number}>
                  {number} ({ended})
                </option>
              ))}
            </select>
          </label>
        )}
        {indexes && (
          <input
            type="search"
            inputMode="numeric"
            size={8}
            placeholder={`Index, ${indexes}`}
            aria-label="Show only the output of this index; Enter applies it"
            defaultValue={index}
            onKeyDown={(event) => {
              const text = event.currentTarget.value;
              const wanted = parseIndex(text);
              if (event.key !== "Enter" || (text && (wanted === undefined || !hasIndex(indexes, wanted)))) return;
              change({ index: text });
            }}
          />
        )}
        {children}
        <input
          type="search"
          placeholder="Search the log"
          aria-label="Search the log; Enter: next match, Shift+Enter: previous match"
          onKeyDown={(event) => {
            if (event.key === "Escape") event.currentTarget.blur();
            if (event.key === "Enter")
              terminal.current?.find(event.currentTarget.value, event.shiftKey ? "back" : "on");
          }}
          onChange={(event) => terminal.current?.find(event.currentTarget.value, "here")}
        />
        <label>
          <input type="checkbox" checked={follow} onChange={(event) => doFollow(event.target.checked)} /> Follow
        </label>
        <button type="button" onClick={() => saveLog(which).catch((error: ApiError) => setState(error.message))}>
          Save as text
        </button>
        <span role="status">{state}</span>
      </div>
      <div ref={place} className="screen" />
    </div>
  );
}

// A link could not send the session, so the text is loaded first.
async function saveLog(of: LogOf) {
  const address = URL.createObjectURL(await readLogText(of));
  const link = document.createElement("a");
  link.href = address;
  link.download = `${of.name}.log`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), kept);
}
