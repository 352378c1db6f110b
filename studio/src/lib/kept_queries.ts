// Queries that this browser keeps for each graph: those that were run, and those that were saved under a name.
import { useRef, useState } from "preact/hooks";

export interface Past {
  text: string;
  when: number;
}
export interface Saved {
  name: string;
  text: string;
}

const MAX_PAST = 40;

/** The texts that were run, newest first. */
export function usePast(graph: string): [Past[], (text: string) => void, () => void] {
  const [past, write] = useKept<Past>(`omnigraph-history-${graph}`);
  return [
    past.current,
    (text) => write([{ text, when: Date.now() }, ...past.current.filter((item) => item.text !== text)].slice(0, MAX_PAST)),
    () => write([]),
  ];
}

/** The queries with a name, sorted by it. Saving under a name again replaces the text. */
export function useSaved(graph: string): [Saved[], (saved: Saved) => void, (name: string) => void] {
  const [saved, write] = useKept<Saved>(`omnigraph-saved-${graph}`);
  const without = (name: string) => saved.current.filter((item) => item.name !== name);
  return [
    saved.current,
    (item) => write([...without(item.name), item].sort((a, b) => (a.name < b.name ? -1 : 1))),
    (name) => write(without(name)),
  ];
}

function useKept<T>(key: string): [{ current: T[] }, (items: T[]) => void] {
  const [, redraw] = useState(0);
  const items = useRef<T[] | null>(null);
  items.current ??= readList<T>(key);
  const write = (next: T[]) => {
    items.current = next;
    localStorage.setItem(key, JSON.stringify(next));
    redraw((old) => old + 1);
  };
  return [items as { current: T[] }, write];
}

function readList<T>(key: string): T[] {
  try {
    const found = JSON.parse(localStorage.getItem(key) ?? "[]") as unknown;
    return Array.isArray(found) ? (found as T[]) : [];
  } catch {
    return [];
  }
}
