// A table that renders only the visible rows, so that ten thousand rows cost as much as forty.
import { type Cell, type ColumnDef, flexRender, tableFeatures, useTable } from "@tanstack/react-table";
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useEffect, useMemo, useRef } from "react";
import type { Row } from "../api.ts";
import { navigate, objectPath } from "../data/route.ts";
import { useKeys } from "./keys.ts";
import type { How, useSelection } from "./selection.ts";

const features = tableFeatures({});
export type Column = ColumnDef<typeof features, Row> & {
  id: string;
  header: string;
  meta: { least: number; grow?: number; sort?: boolean };
};
type RowCell = Cell<typeof features, Row, unknown>;

const rowHeight = 32;
const checkWidth = 36;

/** widths returns how columns share the width, and the width below which the table scrolls horizontally. */
function widths(columns: Column[]) {
  const parts = columns.map(({ meta: { least, grow } }) => (grow ? `minmax(${least}px, ${grow}fr)` : `${least}px`));
  return {
    template: [`${checkWidth}px`, ...parts].join(" "),
    least: columns.reduce((sum, column) => sum + column.meta.least, checkWidth),
  };
}
const scrolled = new Map<string, number>();

type Props = {
  label: string;
  listKey: string;
  rows: readonly Row[];
  total: number;
  columns: Column[];
  sort: string;
  onSort: (sort: string) => void;
  select: ReturnType<typeof useSelection>;
};

export function RowTable({ label, listKey, rows, total, columns, sort, onSort, select }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    overscan: 8,
    initialOffset: scrolled.get(listKey) ?? 0,
  });
  const items = virtual.getVirtualItems();
  const first = items[0]?.index ?? 0;
  const last = items.at(-1)?.index ?? -1;
  const seen = useMemo(() => rows.slice(first, last + 1), [rows, first, last]);
  const table = useTable({ features, columns, data: seen, getRowId: (row: Row) => row.uid });
  const { selection, step, choose, clear } = select;

  const open = (event: KeyboardEvent) => {
    const row = rows.find((r) => r.uid === selection.cursor);
    const onItsOwn = event.target instanceof Element && event.target.closest("a, button");
    if (row && !onItsOwn) navigate(objectPath(row));
  };
  useKeys({
    j: () => step(1),
    k: () => step(-1),
    x: () => selection.cursor && choose(selection.cursor, "toggle"),
    Enter: open,
    Escape: clear,
  });

  const cursor = selection.cursor;
  const rowsNow = useRef(rows);
  rowsNow.current = rows;
  useEffect(() => {
    const at = rowsNow.current.findIndex((row) => row.uid === cursor);
    if (at >= 0) virtual.scrollToIndex(at, { align: "auto" });
  }, [cursor, virtual]);

  const { template, least } = useMemo(() => widths(columns), [columns]);
  return (
    <div
      ref={scroller}
      className="rows"
      role="grid"
      aria-label={label}
      aria-rowcount={total + 1}
      aria-multiselectable="true"
      tabIndex={0}
      onScroll={(event) => scrolled.set(listKey, event.currentTarget.scrollTop)}
    >
      <div role="rowgroup" className="head" style={{ minWidth: least }}>
        <div role="row" tabIndex={-1} aria-rowindex={1} style={{ gridTemplateColumns: template }}>
          <div role="columnheader" tabIndex={-1}>
            <input
              type="checkbox"
              aria-label={`Select all ${rows.length}`}
              checked={rows.length > 0 && selection.chosen.size >= rows.length}
              onChange={(event) => (event.currentTarget.checked ? select.all() : clear())}
            />
          </div>
          {table.getHeaderGroups()[0]?.headers.map((header) => (
            <Header key={header.id} column={header.column.columnDef as Column} sort={sort} onSort={onSort} />
          ))}
        </div>
      </div>
      <div role="rowgroup" className="body" style={{ height: virtual.getTotalSize(), minWidth: least }}>
        {table.getRowModel().rows.map((row, i) => (
          <TableRow
            key={row.id}
            row={row.original}
            cells={row.getAllCells()}
            index={first + i}
            template={template}
            chosen={selection.chosen.has(row.id)}
            cursor={cursor === row.id}
            choose={choose}
          />
        ))}
      </div>
    </div>
  );
}

function Header({ column, sort, onSort }: { column: Column; sort: string; onSort: (sort: string) => void }) {
  const up = sort === column.id;
  const down = sort === `-${column.id}`;
  return (
    <div role="columnheader" tabIndex={-1} aria-sort={up ? "ascending" : down ? "descending" : undefined}>
      {column.meta.sort === false ? (
        column.header
      ) : (
        <button type="button" onClick={() => onSort(up ? `-${column.id}` : column.id)}>
          {column.header}
          <span aria-hidden="true">{up ? " ↑" : down ? " ↓" : ""}</span>
        </button>
      )}
    </div>
  );
}

type RowProps = {
  row: Row;
  cells: RowCell[];
  index: number;
  template: string;
  chosen: boolean;
  cursor: boolean;
  choose: (uid: string, how: How) => void;
};

const how = (event: React.MouseEvent): How => (event.shiftKey ? "range" : "toggle");

function RowLine({ row, cells, index, template, chosen, cursor, choose }: RowProps) {
  const modified = (event: React.MouseEvent) => event.shiftKey || event.ctrlKey || event.metaKey;
  return (
    <div
      role="row"
      tabIndex={-1}
      aria-rowindex={index + 2}
      aria-selected={chosen}
      className={`line${cursor ? " cursor" : ""}`}
      style={{ gridTemplateColumns: template, transform: `translateY(${index * rowHeight}px)` }}
      // By default, Ctrl opens the link in a tab and Shift selects text; here both select rows.
      onClickCapture={(event) => {
        if (!modified(event) || event.target instanceof HTMLInputElement) return;
        event.preventDefault();
        event.stopPropagation();
        choose(row.uid, how(event));
      }}
      onMouseDown={(event) => event.shiftKey && event.preventDefault()}
      onDoubleClick={() => navigate(objectPath(row))}
    >
      <div role="gridcell" tabIndex={-1}>
        <input
          type="checkbox"
          aria-label={`Select ${row.name}`}
          checked={chosen}
          onChange={() => {}}
          onClick={(event) => choose(row.uid, how(event))}
        />
      </div>
      {cells.map((cell) => (
        <div key={cell.id} role="gridcell" tabIndex={-1}>
          {flexRender(cell.column.columnDef.cell, cell.getContext())}
        </div>
      ))}
    </div>
  );
}

// The cells of a row depend only on its object, so the same object is not drawn again.
const TableRow = memo(
  RowLine,
  (a, b) =>
    a.row === b.row &&
    a.index === b.index &&
    a.chosen === b.chosen &&
    a.cursor === b.cursor &&
    a.template === b.template &&
    a.choose === b.choose,
);
