import { Component, lazy, type ReactNode, Suspense, useCallback, useEffect, useState } from "react";
import { type ApiError, api, type Me, sessionEvents } from "./api.ts";
import { beginAt } from "./data/live.ts";
import { type Route, routeOf, usePath } from "./data/route.ts";
import { ListPage } from "./pages/ListPage.tsx";
import { OverviewPage } from "./pages/OverviewPage.tsx";
import { SignInPage } from "./pages/SignInPage.tsx";
import { Shell } from "./Shell.tsx";
import { Session } from "./session.tsx";
import { Empty, ErrorNote, Loading } from "./ui/basics.tsx";

const ObjectPage = lazy(() => import("./pages/ObjectPage.tsx"));
const HistoryPage = lazy(() => import("./pages/HistoryPage.tsx"));

type Who = { me?: Me; error?: ApiError };

export function App() {
  const [who, setWho] = useState<Who>({});
  const load = useCallback(() => {
    api.me().then(
      (me) => {
        beginAt(me.position);
        setWho({ me });
      },
      // The pages stay while the server is unreachable for a moment, but not after the session has ended.
      (error) => setWho((was) => (was.me && error.code !== 401 ? was : { error })),
    );
  }, []);
  useEffect(() => {
    load();
    sessionEvents.addEventListener("check", load);
    return () => sessionEvents.removeEventListener("check", load);
  }, [load]);
  if (who.error?.code === 401) return <SignInPage done={load} />;
  if (who.error) return <ErrorNote error={who.error} retry={load} />;
  if (!who.me) return <Loading />;
  return (
    <Session value={who.me}>
      <Shell signedOut={load}>
        <Pages />
      </Shell>
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
