// Data that is loaded as a whole: again when its key changes, or when an event concerns it.
import { useCallback, useEffect, useRef, useState } from "react";
import type { ApiError, Change } from "../api.ts";
import { listen } from "./live.ts";

export type Loaded<T> = { data?: T; error?: ApiError; loading: boolean; reload: () => void };

// A burst of events causes one reload; there are at most two reloads a second.
const often = 500;

export function useLoad<T>(
  key: string,
  load: (signal: AbortSignal) => Promise<T>,
  concerns: (change: Change) => boolean = () => false,
  pause = often,
): Loaded<T> {
  const [state, setState] = useState<{ key: string; data?: T; error?: ApiError }>({ key: "" });
  const latest = useRef({ load, concerns });
  latest.current = { load, concerns };
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const running = useRef<AbortController>(undefined);

  const reload = useCallback(() => {
    running.current?.abort();
    const control = new AbortController();
    running.current = control;
    latest.current.load(control.signal).then(
      (data) => !control.signal.aborted && setState({ key, data }),
      (error) =>
        !control.signal.aborted && setState((was) => ({ key, data: was.key === key ? was.data : undefined, error })),
    );
  }, [key]);

  useEffect(() => {
    const soon = () => {
      timer.current ??= setTimeout(() => {
        timer.current = undefined;
        reload();
      }, pause);
    };
    reload();
    const leave = listen({ changes: (batch) => batch.some((c) => latest.current.concerns(c)) && soon(), resync: soon });
    return () => {
      leave();
      clearTimeout(timer.current);
      timer.current = undefined;
      running.current?.abort();
    };
  }, [reload, pause]);

  const current = state.key === key;
  return {
    data: current ? state.data : undefined,
    error: current ? state.error : undefined,
    loading: !current,
    reload,
  };
}
