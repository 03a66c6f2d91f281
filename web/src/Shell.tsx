// The frame of every page: navigation, choice of namespace, and whether the data is live.
import { lazy, type ReactNode, Suspense, useRef, useState, useSyncExternalStore } from "react";
import type { Kind } from "./api.ts";
import { checkSession, signOut } from "./credential.ts";
import { liveState } from "./data/live.ts";
import { navigate, useParams, usePath, withParams } from "./data/route.ts";
import { kindNames } from "./kindNames.ts";
import { useSession } from "./session.tsx";
import { Link } from "./ui/basics.tsx";
import { useKeys } from "./ui/keys.ts";
import { useTheme } from "./ui/theme.ts";

const Help = lazy(() => import("./ui/Help.tsx"));

const menu: { title: string; kinds: Kind[] }[] = [
  { title: "Robots", kinds: ["jobs", "rollouts", "tasks", "robots"] },
  { title: "Workflows", kinds: ["jobflows", "cronjobflows"] },
  { title: "Pods", kinds: ["vcjobs", "rayclusters", "pods"] },
];

const goTo: Record<string, string> = { o: "/", j: "/jobs", t: "/tasks", f: "/jobflows", r: "/robots" };

export function Shell({ children }: { children: ReactNode }) {
  const [help, setHelp] = useState(false);
  const going = useRef(false);
  const search = useRef<HTMLInputElement>(null);
  const go = (key: string) => () => {
    if (going.current) navigate(goTo[key] as string);
    going.current = false;
  };
  useKeys({
    "?": () => setHelp(true),
    "/": (event) => {
      event.preventDefault();
      (document.querySelector<HTMLInputElement>("main input[type=search]") ?? search.current)?.focus();
    },
    g: () => {
      going.current = true;
      setTimeout(() => {
        going.current = false;
      }, 1000);
    },
    ...Object.fromEntries(Object.keys(goTo).map((key) => [key, go(key)])),
  });
  return (
    <div className="shell">
      <a className="skip" href="#main">
        Skip to the page
      </a>
      <Menu />
      <header>
        <form
          role="search"
          onSubmit={(event) => {
            event.preventDefault();
            const { ns } = Object.fromEntries(new URLSearchParams(location.search));
            navigate(withParams("/tasks", "", { ns, q: search.current?.value }));
          }}
        >
          <input ref={search} type="search" placeholder="Find tasks  /" aria-label="Find tasks" />
        </form>
        <NamespaceChoice />
        <span className="space" />
        <Live />
        <ThemeButton />
        <button type="button" aria-label="Keys" title="Keys (?)" onClick={() => setHelp(true)}>
          ?
        </button>
        <User />
      </header>
      <main id="main" tabIndex={-1}>
        {children}
      </main>
      {help && (
        <Suspense>
          <Help close={() => setHelp(false)} />
        </Suspense>
      )}
    </div>
  );
}

function Menu() {
  const path = usePath();
  const [params] = useParams();
  const { version, archive } = useSession();
  const namespace = params.get("ns");
  const entry = (to: string, title: string) => (
    <Link
      key={to}
      to={namespace ? `${to}?ns=${encodeURIComponent(namespace)}` : to}
      aria-current={(to === "/" ? path === "/" : path === to || path.startsWith(`${to}/`)) ? "page" : undefined}
    >
      {title}
    </Link>
  );
  return (
    <nav className="menu" aria-label="Pages">
      <div className="brand">
        <img src="/icon.svg" alt="" width="22" height="22" /> K8s4r
      </div>
      {entry("/", "Overview")}
      {menu.map((part) => (
        <div key={part.title} className="part">
          <h2>{part.title}</h2>
          {part.kinds.map((kind) => entry(`/${kind}`, kindNames[kind].many))}
        </div>
      ))}
      {archive && (
        <div className="part">
          <h2>Archive</h2>
          {entry("/history", "History")}
        </div>
      )}
      <small>{version}</small>
    </nav>
  );
}

function NamespaceChoice() {
  const { namespaces } = useSession();
  const [params, change] = useParams();
  return (
    <label>
      <span className="hidden">Namespace</span>
      <select value={params.get("ns") ?? ""} onChange={(event) => change({ ns: event.target.value })}>
        <option value="">all namespaces</option>
        {namespaces.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </label>
  );
}

const connectionNames = {
  connecting: "connecting",
  live: "live",
  broken: "disconnected, reconnecting",
  ended: "signed out",
};

function Live() {
  const now = useSyncExternalStore(liveState.subscribe, liveState.get);
  return (
    <>
      <span className={`live ${now}`} role="status">
        <i aria-hidden="true" /> {connectionNames[now]}
      </span>
      {now === "ended" && (
        <button type="button" onClick={checkSession}>
          Sign in again
        </button>
      )}
    </>
  );
}

function ThemeButton() {
  const [theme, next] = useTheme();
  return (
    <button type="button" onClick={next} title="Colors: system, light or dark">
      <span aria-hidden="true">◐ </span>
      {theme}
    </button>
  );
}

function User() {
  const { user } = useSession();
  return (
    <>
      <span className="user" title={user}>
        {user}
      </span>
      <button type="button" onClick={signOut}>
        Sign out
      </button>
    </>
  );
}
