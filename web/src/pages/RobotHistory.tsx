import { useEffect, useState } from "react";
import { type ApiError, type Attempt, api } from "../api.ts";
import { useParams } from "../data/route.ts";
import { fromLocal } from "../time.ts";
import { ErrorNote, Loading } from "../ui/basics.tsx";
import { Attempts } from "./Attempts.tsx";
import { Between } from "./Between.tsx";

type Found = { items: Attempt[]; next?: string };

/** RobotHistory lists the attempts that ran on a robot, from the archive, page by page. */
export function RobotHistory({ robot }: { robot: string }) {
  const [params] = useParams();
  const since = fromLocal(params.get("since"));
  const until = fromLocal(params.get("until"));
  const [found, setFound] = useState<Found>();
  const [error, setError] = useState<ApiError>();
  useEffect(() => {
    const control = new AbortController();
    setError(undefined);
    api.ranOn(robot, { since, until }, control.signal).then(
      (page) => setFound({ items: page.items, next: page.continue }),
      (err) => !control.signal.aborted && setError(err),
    );
    return () => control.abort();
  }, [robot, since, until]);
  const more = () =>
    api
      .ranOn(robot, { since, until, continue: found?.next })
      .then(
        (page) => setFound((was) => ({ items: [...(was?.items ?? []), ...page.items], next: page.continue })),
        setError,
      );
  return (
    <>
      <Between />
      <ErrorNote error={error} />
      {found ? <Attempts of={found.items} names /> : !error && <Loading />}
      {found?.next && (
        <button type="button" onClick={more}>
          Show older ones
        </button>
      )}
    </>
  );
}
