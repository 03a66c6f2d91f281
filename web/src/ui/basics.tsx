// The small pieces that every page is made of.
import { type ReactNode, useEffect } from "react";
import type { ApiError, Progress, Tone } from "../api.ts";
import { navigate, objectPath } from "../data/route.ts";
import { age, exact, span } from "../time.ts";
import { useNow } from "./now.ts";

export function Link({ to, children, ...rest }: { to: string } & Omit<React.ComponentProps<"a">, "href">) {
  return (
    <a
      href={to}
      {...rest}
      onClick={(event) => {
        rest.onClick?.(event);
        if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
        event.preventDefault();
        navigate(to);
      }}
    >
      {children}
    </a>
  );
}

export function ObjectLink({ of, children }: { of: Parameters<typeof objectPath>[0]; children?: ReactNode }) {
  return <Link to={objectPath(of)}>{children ?? of.name}</Link>;
}

export function State({ tone, children }: { tone: Tone; children: ReactNode }) {
  return (
    <span className={`state tone-${tone}`}>
      <i aria-hidden="true" />
      {children}
    </span>
  );
}

/** titled writes a title when it is wanted: dates of a thousand rows are slow to put into words. */
const titled = (text: () => string) => (event: React.PointerEvent<HTMLElement>) => {
  event.currentTarget.title = text();
};

/** When says how long ago, and exactly when on hover. */
export function When({ time }: { time?: string }) {
  const now = useNow();
  if (!time) return null;
  return (
    <time dateTime={time} onPointerEnter={titled(() => exact(time))}>
      {age(time, now)}
    </time>
  );
}

/** Took says how long something ran, or has run by now. */
export function Took({ start, end }: { start?: string; end?: string }) {
  const now = useNow();
  if (!start) return null;
  return (
    <time dateTime={start} onPointerEnter={titled(() => `${exact(start)}${end ? ` to ${exact(end)}` : ""}`)}>
      {span(start, end, now)}
    </time>
  );
}

const parts: [keyof Omit<Progress, "total">, Tone][] = [
  ["done", "good"],
  ["failed", "bad"],
  ["running", "running"],
  ["waiting", "waiting"],
];

export function ProgressBar({ of, wide }: { of?: Progress; wide?: boolean }) {
  if (!of) return null;
  const text = parts.map(([key]) => `${of[key]} ${key}`).join(", ");
  return (
    <span className={wide ? "progress wide" : "progress"} title={text}>
      <span className="track" role="img" aria-label={text}>
        {of.total > 0 &&
          parts.map(([key, tone]) => (
            <span key={key} className={`tone-${tone}`} style={{ width: `${(100 * of[key]) / of.total}%` }} />
          ))}
      </span>
      <span className="count">
        {of.done}/{of.total}
      </span>
    </span>
  );
}

const tones: Tone[] = ["good", "bad", "running", "waiting", "paused", "gone"];

export function ToneBar({ of }: { of: Partial<Record<Tone, number>> }) {
  const total = tones.reduce((sum, tone) => sum + (of[tone] ?? 0), 0);
  const text = tones.filter((tone) => of[tone]).map((tone) => `${of[tone]} ${tone}`);
  return (
    <span className="track" role="img" aria-label={text.join(", ") || "none"} title={text.join(", ")}>
      {total > 0 &&
        tones.map((tone) => (
          <span key={tone} className={`tone-${tone}`} style={{ width: `${(100 * (of[tone] ?? 0)) / total}%` }} />
        ))}
    </span>
  );
}

export function ErrorNote({ error, retry }: { error?: ApiError; retry?: () => void }) {
  if (!error) return null;
  return (
    <div className="note bad" role="alert">
      <span>
        {error.message}
        {error.code ? ` (${error.reason || error.code})` : ""}
      </span>
      {retry && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Command({ children }: { children: string }) {
  return (
    <span className="command">
      <code>{children}</code>
      <button type="button" onClick={() => navigator.clipboard?.writeText(children)}>
        Copy
      </button>
    </span>
  );
}

export function Empty({ title, children, command }: { title: string; children?: ReactNode; command?: string }) {
  return (
    <div className="empty">
      <h2>{title}</h2>
      {children && <p>{children}</p>}
      {command && <Command>{command}</Command>}
    </div>
  );
}

export const Loading = () => (
  <p className="loading" role="status">
    Loading…
  </p>
);

export function useTitle(title: string) {
  useEffect(() => {
    document.title = `${title} · K8s4r`;
  }, [title]);
}

export function Facts({ children }: { children: ReactNode }) {
  return <dl className="facts">{children}</dl>;
}

export function Fact({ name, children }: { name: string; children: ReactNode }) {
  if (children === undefined || children === null || children === "") return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
