// A list of rows that stays in sync with the server: loaded page by page, then updated by events.
import { type ApiError, api, type Change, type Kind, type Query, type Row } from "../api.ts";
import { listen } from "./live.ts";
import { matches, merge, newer, type Order, orderBy, servedSort } from "./order.ts";

/** Shown is what a page shows of a list. It is a new object after each change. */
export type Shown = {
  rows: readonly Row[];
  total: number;
  loading: boolean;
  /** The list has more rows than the page shows; the user must filter it. */
  cut: boolean;
  error?: ApiError;
};

const pageSize = 500;
// With more rows, users filter; loading them would cost memory in the browser and time in the archive.
const most = { live: 50_000, archived: 2_000, all: 2_000 };

type Load = typeof api.list;

export class LiveList {
  private shown: Shown = { rows: [], total: 0, loading: true, cut: false };
  private readonly byUid = new Map<string, Row>();
  // Rows that were removed while the list was loading: an older page must not add them again.
  private readonly gone = new Set<string>();
  private readonly watchers = new Set<() => void>();
  private readonly order: Order;
  private loading?: AbortController;
  private leave?: () => void;

  constructor(
    private readonly kind: Kind,
    private readonly query: Query,
    private readonly sort: string,
    private readonly load: Load = api.list,
  ) {
    this.order = orderBy(sort);
  }

  get = () => this.shown;

  subscribe = (watch: () => void) => {
    this.watchers.add(watch);
    return () => this.watchers.delete(watch);
  };

  start() {
    if (this.leave) return;
    this.leave = listen({ changes: (batch) => this.apply(batch), resync: () => void this.reload() });
    void this.reload();
  }

  stop() {
    this.leave?.();
    this.leave = undefined;
    this.loading?.abort();
    this.watchers.clear();
  }

  /** reload loads the list again. The current rows stay visible until the new pages are loaded. */
  async reload() {
    this.loading?.abort();
    this.loading = new AbortController();
    const { signal } = this.loading;
    this.gone.clear();
    const seen = new Set<string>();
    this.show({ loading: true, error: undefined });
    try {
      let next: string | undefined;
      do {
        const page = await this.load(
          this.kind,
          this.query,
          { sort: servedSort(this.sort, this.query.scope), limit: pageSize, continue: next },
          signal,
        );
        if (signal.aborted) return;
        for (const row of page.items) seen.add(row.uid);
        this.put(page.items, page.total ?? seen.size);
        next = page.continue;
      } while (next && seen.size < most[this.query.scope ?? "live"]);
      this.drop((row) => !seen.has(row.uid) && !this.arrived.has(row.uid));
      this.show({ loading: false, cut: Boolean(next), total: next ? this.shown.total : this.shown.rows.length });
    } catch (err) {
      if (!signal.aborted) this.show({ loading: false, error: err as ApiError });
    } finally {
      if (!signal.aborted) this.arrived.clear();
    }
  }

  // Rows that events added while the list was loading: they may be on none of its pages.
  private readonly arrived = new Set<string>();

  /** apply applies a batch of events. Events that are not newer than the current row are ignored. */
  apply(batch: readonly Change[]) {
    const changes = new Map<string, Row | null>();
    for (const change of batch) {
      if (change.kind !== this.kind) continue;
      const have = changes.get(change.uid) ?? this.byUid.get(change.uid);
      if (change.type === "removed" || !change.row) {
        if (this.shown.loading) this.gone.add(change.uid);
        if (have && !(have.archived || this.query.scope === "all")) changes.set(change.uid, null);
        continue;
      }
      if (have && !newer(change.row.resourceVersion, have.resourceVersion)) continue;
      const fits = matches(this.query, change.row);
      if (fits && this.shown.loading) this.arrived.add(change.uid);
      if (fits || have) changes.set(change.uid, fits ? change.row : null);
    }
    if (changes.size > 0) this.change(changes, this.shown.total + this.growth(changes));
  }

  private growth(changes: ReadonlyMap<string, Row | null>): number {
    let by = 0;
    for (const [uid, row] of changes) by += Number(row !== null) - Number(this.byUid.has(uid));
    return by;
  }

  private put(items: readonly Row[], total: number) {
    const changes = new Map<string, Row | null>();
    for (const row of items) {
      const have = this.byUid.get(row.uid);
      if (this.gone.has(row.uid) || (have && !newer(row.resourceVersion, have.resourceVersion))) continue;
      changes.set(row.uid, row);
    }
    this.change(changes, total);
  }

  private drop(which: (row: Row) => boolean) {
    const changes = new Map(this.shown.rows.filter(which).map((row) => [row.uid, null]));
    if (changes.size > 0) this.change(changes, this.shown.total);
  }

  private change(changes: ReadonlyMap<string, Row | null>, total: number) {
    for (const [uid, row] of changes) row ? this.byUid.set(uid, row) : this.byUid.delete(uid);
    const rows = merge(this.shown.rows, changes, this.order);
    this.show({ rows, total: Math.max(total, rows.length) });
  }

  private show(part: Partial<Shown>) {
    this.shown = { ...this.shown, ...part };
    for (const watch of this.watchers) watch();
  }
}
