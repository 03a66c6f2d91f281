import type { ReactNode } from "react";
import { useParams, withParams } from "../data/route.ts";
import { Link } from "./basics.tsx";

export type Tab = { id: string; title: string; show: () => ReactNode };

/** Tabs stores the selected tab in the address. The first tab needs no parameter. */
export function Tabs({ tabs, label }: { tabs: Tab[]; label: string }) {
  const [params] = useParams();
  const chosen = tabs.find((tab) => tab.id === params.get("tab")) ?? tabs[0];
  return (
    <>
      <nav className="tabs" aria-label={label}>
        {tabs.map((tab, i) => (
          <Link
            key={tab.id}
            to={withParams(location.pathname, location.search, { tab: i === 0 ? undefined : tab.id })}
            aria-current={tab === chosen ? "page" : undefined}
          >
            {tab.title}
          </Link>
        ))}
      </nav>
      <section className="tab" aria-label={chosen?.title} key={chosen?.id}>
        {chosen?.show()}
      </section>
    </>
  );
}
