// Small components that every page uses.
import { type ReactNode, useEffect } from "react";
import type { ApiError, Progress, Severity } from "../api.ts";
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

export function State({ severity, children }: { severity: Severity; children: ReactNode }) {
  return (
    <span className={`state severity-${severity}`}>
      <i aria-hidden="true" />
      {children}
    </span>
  );
}

/** titled sets a title on hover only: formatting the dates of a thousand rows is slow. */
const titled = (text: () => string) => (event: React.PointerEvent<HTMLElement>) => {
  event.currentTarget.title = text();
};

/** When shows how long ago a time was, and the exact time on hover. */
export function When({ time }: { time?: string }) {
  const now = useNow();
  if (!time) return null;
  return (
    <time dateTime={time} onPointerEnter={titled(() => exact(time))}>
      {age(time, now)}
    </time>
  );
}

/** Took shows how long something ran, or has run until now. */
export function Took({ start, end }: { start?: string; end?: string }) {
  const now = useNow();
  if (!start) return null;
  return (
    <time dateTime={start} onPointerEnter={titled(() => `${exact(start)}${end ? ` to ${exact(end)}` : ""}`)}>
      {span(start, end, now)}
    </time>
  );
}

const parts: [keyof Omit<Progress, "total">, Severity][] = [
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
          parts.map(([key, severity]) => (
            <span key={key} className={`severity-${severity}`} style={{ width: `${(100 * of[key]) / of.total}%` }} />
          ))}
      </span>
      <span className="count">
        {of.done}/{of.total}
      </span>
    </span>
  );
}

const severities: Severity[] = ["good", "bad", "running", "waiting", "paused", "gone"];

export function SeverityBar({ of }: { of: Partial<Record<Severity, number>> }) {
  const total = severities.reduce((sum, severity) => sum + (of[severity] ?? 0), 0);
  const text = severities.filter((severity) => of[severity]).map((severity) => `${of[severity]} ${severity}`);
  return (
    <span className="track" role="img" aria-label={text.join(", ") || "none"} title={text.join(", ")}>
      {total > 0 &&
        severities.map((severity) => (
          <span
            key={severity}
            className={`severity-${severity}`}
            style={{ width: `${(100 * (of[severity] ?? 0)) / total}%` }}
          />
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
