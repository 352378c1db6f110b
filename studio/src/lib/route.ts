// The address of a view: `#/GRAPH/PAGE?branch=…&at=…`. It is behind the hash, so it is not sent to the server.
import { useEffect, useState } from "preact/hooks";

export const PAGES = ["query", "explore", "schema", "history", "review", "operate"] as const;
export type Page = (typeof PAGES)[number];
export type Params = Record<string, string>;

export interface Route {
  graph: string;
  page: Page;
  params: Params;
}

export function parseRoute(hash: string): Route {
  const [path, search] = hash.replace(/^#\/?/, "").split(/\?(.*)/s, 2);
  const [graph = "", page = ""] = path.split("/").map(decodeURIComponent);
  return {
    graph,
    page: (PAGES as readonly string[]).includes(page) ? (page as Page) : "query",
    params: Object.fromEntries(new URLSearchParams(search ?? "")),
  };
}

export function hrefOf(route: Route): string {
  const found = Object.entries(route.params).filter(([, value]) => value !== "");
  const search = new URLSearchParams(found).toString();
  return `#/${encodeURIComponent(route.graph)}/${route.page}${search ? `?${search}` : ""}`;
}

/** Go to a view. Params that are not given stay for the same page; on another page only branch and moment stay. */
export function navigate(patch: Partial<Route>, options: { replace?: boolean } = {}): void {
  const target = hrefOf(patchRoute(parseRoute(location.hash), patch));
  if (target === location.hash) return;
  if (options.replace) {
    history.replaceState(null, "", target);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = target;
  }
}

export function patchRoute(route: Route, patch: Partial<Route>): Route {
  const graph = patch.graph ?? route.graph;
  const page = patch.page ?? route.page;
  let kept: Params = route.params;
  if (graph !== route.graph) kept = {};
  else if (page !== route.page) kept = pick(route.params, ["branch", "at"]);
  return { graph, page, params: { ...kept, ...patch.params } };
}

function pick(params: Params, names: string[]): Params {
  return Object.fromEntries(Object.entries(params).filter(([name]) => names.includes(name)));
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const changed = () => setRoute(parseRoute(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

export const branchOf = (route: Route): string => route.params.branch || "main";
