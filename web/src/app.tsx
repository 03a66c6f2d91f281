import { Component, lazy, type ReactNode, Suspense, useCallback, useEffect, useRef, useState } from "react";
import { type ApiError, api, type Me } from "./api.ts";
import { sessionEvents, wantSession } from "./credential.ts";
import { beginAt } from "./data/live.ts";
import { navigate, type Route, routeOf, usePath } from "./data/route.ts";
import { ListPage } from "./pages/ListPage.tsx";
import { OverviewPage } from "./pages/OverviewPage.tsx";
import { SignInDialog, SignInPage } from "./pages/SignInPage.tsx";
import { Shell } from "./Shell.tsx";
import { Session } from "./session.tsx";
import { Empty, ErrorNote, Loading } from "./ui/basics.tsx";

const ObjectPage = lazy(() => import("./pages/ObjectPage.tsx"));
const HistoryPage = lazy(() => import("./pages/HistoryPage.tsx"));

/** Who is the signed-in user. If ended, the user must sign in again and still sees the pages. */
type Who = { me?: Me; error?: ApiError; ended?: boolean };

/** redeemLink signs in with the one-time code in the address, if there is one, and removes it there. */
async function redeemLink() {
  if (location.pathname !== "/signin") return;
  const code = new URLSearchParams(location.search).get("code");
  navigate("/", "replace");
  if (code) await api.signIn({ code });
}

export function App() {
  const [who, setWho] = useState<Who>({});
  const [linkError, setLinkError] = useState<ApiError>();
  const user = useRef<string>(undefined);
  const turn = useRef(0);
  const load = useCallback(() => {
    const mine = ++turn.current;
    api.me().then(
      (me) => {
        if (mine !== turn.current) return;
        if (user.current !== undefined && user.current !== me.user) return location.reload(); // what another user sees
        user.current = me.user;
        beginAt(me.position);
        setWho({ me });
      },
      (error) => {
        if (mine !== turn.current) return;
        if (error.code === 401) wantSession();
        // The pages stay while the server is unreachable for a moment, and until the user has signed in again.
        setWho((was) => (was.me ? { me: was.me, ended: error.code === 401 } : { error }));
      },
    );
  }, []);
  useEffect(() => {
    redeemLink().catch(setLinkError).then(load);
    sessionEvents.addEventListener("check", load);
    sessionEvents.addEventListener("changed", load);
    return () => {
      sessionEvents.removeEventListener("check", load);
      sessionEvents.removeEventListener("changed", load);
    };
  }, [load]);
  if (who.error?.code === 401) return <SignInPage error={linkError} />;
  if (who.error) return <ErrorNote error={who.error} retry={load} />;
  if (!who.me) return <Loading />;
  return (
    <Session value={who.me}>
      <Shell>
        <Pages />
      </Shell>
      {who.ended && <SignInDialog close={() => setWho({ me: who.me })} />}
    </Session>
  );
}

function Pages() {
  const path = usePath();
  return (
    <Guard key={path}>
      <Suspense fallback={<Loading />}>
        <PageOf route={routeOf(path)} />
      </Suspense>
    </Guard>
  );
}

function PageOf({ route }: { route: Route }) {
  switch (route.page) {
    case "overview":
      return <OverviewPage />;
    case "list":
      return <ListPage kind={route.kind} />;
    case "object":
      return <ObjectPage kind={route.kind} namespace={route.namespace} name={route.name} />;
    case "history":
      return <HistoryPage tab={route.tab} />;
    case "nowhere":
      return <Empty title="Page not found">Choose a page on the left.</Empty>;
  }
}

/** Guard keeps an error in one page from breaking the others. */
class Guard extends Component<{ children: ReactNode }, { error?: Error }> {
  state: { error?: Error } = {};

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  render() {
    if (!this.state.error) return this.props.children;
    return (
      <Empty title="This page cannot be shown" command="k8s4r doctor">
        {this.state.error.message}. Reload the page. If it fails again, report a bug with the messages of the browser's
        console.
      </Empty>
    );
  }
}
