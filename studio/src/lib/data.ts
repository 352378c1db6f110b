// Hooks that load data, and the catalog that the pages of one graph share.
import { createContext } from "preact";
import { useCallback, useContext, useEffect, useRef, useState } from "preact/hooks";
import { ApiError, get, graphPath, placeOf } from "./api";
import { branchOf, type Route } from "./route";
import type { Permissions, Types } from "./types";

export interface Loaded<T> {
  value?: T;
  error?: ApiError;
  loading: boolean;
  reload: () => void;
}

/** Load a value and load it again when a key changes. An older answer never replaces a newer one. */
export function useData<T>(load: (signal: AbortSignal) => Promise<T>, keys: unknown[]): Loaded<T> {
  const [state, setState] = useState<{ value?: T; error?: ApiError; loading: boolean }>({ loading: true });
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    const aborter = new AbortController();
    setState((old) => ({ value: old.value, loading: true }));
    load(aborter.signal).then(
      (value) => !aborter.signal.aborted && setState({ value, loading: false }),
      (error) => !aborter.signal.aborted && setState({ error: asApiError(error), loading: false }),
    );
    return () => aborter.abort();
  }, [...keys, attempt]);
  return { ...state, reload: useCallback(() => setAttempt((old) => old + 1), []) };
}

export const asApiError = (error: unknown): ApiError =>
  error instanceof ApiError ? error : new ApiError(-1, { error: String((error as Error)?.message ?? error) });

export interface Session {
  route: Route;
  types?: Types;
  branches: string[];
  permissions?: Permissions;
  reloadBranches: () => void;
  reloadTypes: () => void;
  notify: (text: string, kind?: "info" | "error") => void;
}
export const SessionContext = createContext<Session>(null as unknown as Session);
export const useSession = (): Session => useContext(SessionContext);

/** The actions that the policy allows to the caller; undefined until they are known. */
export function usePermissions(graph: string, branch: string, target?: string): Permissions | undefined {
  return useData(
    async (signal) => (graph ? get<Permissions>(graphPath(graph, "/permissions"), { branch, target }, signal) : undefined),
    [graph, branch, target],
  ).value;
}

export function useTypes(route: Route): Loaded<Types | undefined> {
  const place = placeOf(route);
  return useData(
    async (signal) => (route.graph ? get<Types>(graphPath(route.graph, "/schema/types"), place, signal) : undefined),
    [route.graph, branchOf(route), route.params.at],
  );
}

/** Return a function that calls the newest `action` after it has not been called for some milliseconds. */
export function useDebounced<A extends unknown[]>(action: (...args: A) => void, wait: number): (...args: A) => void {
  const timer = useRef<number | undefined>(undefined);
  const newest = useRef(action);
  newest.current = action;
  useEffect(() => () => clearTimeout(timer.current), []);
  return useCallback((...args: A) => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => newest.current(...args), wait) as unknown as number;
  }, [wait]);
}
