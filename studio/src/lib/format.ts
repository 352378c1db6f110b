// Values, numbers and times as text.
import { writeJson } from "./api";
import type { Value } from "./types";

const numbers = new Intl.NumberFormat("en");
const times = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });

export const formatCount = (value: number | bigint): string => numbers.format(value);
export const plural = (count: number, one: string, many = `${one}s`): string => `${formatCount(count)} ${count === 1 ? one : many}`;

export function formatValue(value: Value | undefined): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "object") return writeJson(value);
  return String(value);
}

/** A time in microseconds since the epoch. */
export const formatTime = (micros: number): string => times.format(new Date(micros / 1000));
export const isoTime = (micros: number): string => new Date(micros / 1000).toISOString();

export function formatAge(micros: number): string {
  const seconds = Math.max(0, Date.now() / 1000 - micros / 1e6);
  const steps: [number, string][] = [[60, "second"], [60, "minute"], [24, "hour"], [30, "day"], [12, "month"], [1e9, "year"]];
  let value = seconds;
  for (const [size, unit] of steps) {
    if (value < size) return unit === "second" ? "just now" : `${plural(Math.floor(value), unit)} ago`;
    value /= size;
  }
  return "";
}

export function formatBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export const shortId = (id: string): string => (id.length > 12 ? id.slice(-8) : id);

export function toCsv(columns: string[], rows: Record<string, Value>[]): string {
  const cell = (value: Value | undefined): string => {
    const text = formatValue(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns.map(cell).join(","), ...rows.map((row) => columns.map((name) => cell(row[name])).join(","))].join("\r\n") + "\r\n";
}
