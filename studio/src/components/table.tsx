// A table that renders only the rows in view, for results of any size. Arrow keys move between cells.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { formatValue } from "../lib/format";
import type { Row, Value } from "../lib/types";

const ROW = 30;
const EXTRA = 12;
const MIN_WIDTH = 72;
const MAX_WIDTH = 380;

interface Props {
  columns: string[];
  rows: Row[];
  label: string;
  onOpen?: (row: Row) => void;
}

export function DataTable({ columns, rows, label, onOpen }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [sort, setSort] = useState<{ column: string; down: boolean } | null>(null);
  const [cell, setCell] = useState({ row: 0, column: 0 });
  const widths = useMemo(() => columns.map((name) => widthOf(name, rows)), [columns, rows]);
  const shown = useMemo(() => (sort ? sorted(rows, sort.column, sort.down) : rows), [rows, sort]);

  useEffect(() => setSort(null), [columns.join()]);
  useLayoutEffect(() => {
    const box = scroller.current!;
    const measure = () => setView({ top: box.scrollTop, height: box.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(box);
    measure();
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    scroller.current!.scrollTop = 0;
    setCell({ row: 0, column: 0 });
  }, [rows]);

  const first = Math.max(0, Math.floor(view.top / ROW) - EXTRA);
  const last = Math.min(shown.length, Math.ceil((view.top + view.height) / ROW) + EXTRA);
  const total = widths.reduce((sum, width) => sum + width, 0) + 56;
  const grid = `56px ${widths.map((width) => `${width}px`).join(" ")}`;

  const move = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(view.height / ROW) - 2);
    const steps: Record<string, [number, number]> = {
      ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1],
      PageDown: [page, 0], PageUp: [-page, 0], Home: [-shown.length, 0], End: [shown.length, 0],
    };
    if (event.key === "Enter" && onOpen && shown[cell.row]) onOpen(shown[cell.row]);
    if ((event.ctrlKey || event.metaKey) && event.key === "c" && !getSelection()?.toString())
      void navigator.clipboard?.writeText(formatValue(shown[cell.row]?.[columns[cell.column]]));
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const row = Math.min(Math.max(cell.row + step[0], 0), shown.length - 1);
    const column = Math.min(Math.max(cell.column + step[1], 0), columns.length - 1);
    setCell({ row, column });
    const box = scroller.current!;
    const top = row * ROW;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + 2 * ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + 2 * ROW - box.clientHeight;
  };

  return (
    <div
      class="table"
      ref={scroller}
      role="grid"
      aria-label={label}
      aria-rowcount={rows.length + 1}
      aria-colcount={columns.length + 1}
      tabIndex={0}
      onKeyDown={move}
      onScroll={(event) => setView({ top: event.currentTarget.scrollTop, height: event.currentTarget.clientHeight })}
    >
      <div class="table-head" role="row" aria-rowindex={1} style={{ gridTemplateColumns: grid, minWidth: `${total}px` }}>
        <span role="columnheader" class="row-number" aria-label="Row">#</span>
        {columns.map((name) => (
          <span
            role="columnheader"
            key={name}
            aria-sort={sort?.column === name ? (sort.down ? "descending" : "ascending") : "none"}
          >
            <button
              type="button"
              title="Sort the loaded rows"
              onClick={() => setSort(sort?.column !== name ? { column: name, down: false } : sort.down ? null : { column: name, down: true })}
            >
              {name}
              <span aria-hidden="true">{sort?.column === name ? (sort.down ? " ↓" : " ↑") : ""}</span>
            </button>
          </span>
        ))}
      </div>
      <div class="table-body" role="rowgroup" style={{ height: `${shown.length * ROW}px`, minWidth: `${total}px` }}>
        {shown.slice(first, last).map((row, offset) => {
          const number = first + offset;
          return (
            <div
              role="row"
              key={number}
              aria-rowindex={number + 2}
              class={`table-row${number === cell.row ? " chosen" : ""}`}
              style={{ top: `${number * ROW}px`, gridTemplateColumns: grid }}
              onDblClick={() => onOpen?.(row)}
            >
              <span role="rowheader" class="row-number">{number + 1}</span>
              {columns.map((name, column) => (
                <span
                  role="gridcell"
                  key={name}
                  class={cellClass(row[name], number === cell.row && column === cell.column)}
                  title={formatValue(row[name])}
                  onClick={() => setCell({ row: number, column })}
                >
                  {row[name] === null || row[name] === undefined ? "null" : formatValue(row[name]).slice(0, 400)}
                </span>
              ))}
            </div>
          );
        })}
      </div>
    </div>
  );
}

function cellClass(value: Value | undefined, chosen: boolean): string {
  const kind = value === null || value === undefined ? "null" : typeof value === "number" || typeof value === "bigint" ? "number" : "";
  return `${kind}${chosen ? " chosen-cell" : ""}`;
}

function widthOf(name: string, rows: Row[]): number {
  let longest = name.length + 2;
  // A sample is enough, and its cost does not grow with the result.
  for (let place = 0; place < rows.length; place += Math.max(1, Math.floor(rows.length / 200)))
    longest = Math.max(longest, formatValue(rows[place][name]).length);
  return Math.min(MAX_WIDTH, Math.max(MIN_WIDTH, Math.round(longest * 7.6) + 24));
}

function sorted(rows: Row[], column: string, down: boolean): Row[] {
  const sign = down ? -1 : 1;
  return [...rows].sort((a, b) => sign * compare(a[column], b[column]));
}

function compare(a: Value | undefined, b: Value | undefined): number {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  const isNumber = (value: Value) => typeof value === "number" || typeof value === "bigint";
  if (isNumber(a) && isNumber(b)) return a < b ? -1 : 1;
  const [left, right] = [formatValue(a), formatValue(b)];
  return left < right ? -1 : left > right ? 1 : 0;
}
