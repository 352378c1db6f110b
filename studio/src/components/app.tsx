// The frame of all pages: navigation, graph, branch and moment, sign-in, palette and shortcuts.
import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import { get, graphPath, readToken, storeToken } from "../lib/api";
import { SessionContext, useData, usePermissions, useTypes, type Session } from "../lib/data";
import { branchOf, hrefOf, navigate, patchRoute, useRoute, type Page, type Route } from "../lib/route";
import { ExplorePage } from "../pages/explore";
import { HistoryPage } from "../pages/history";
import { OperatePage } from "../pages/operate";
import { QueryPage } from "../pages/query";
import { ReviewPage } from "../pages/review";
import { SchemaPage } from "../pages/schema";
import { MomentBar } from "./moment";
import { Palette, type Command } from "./palette";
import { SignIn } from "./sign_in";
import { Button, Dialog, Empty, ErrorBox, Icon } from "./ui";

const PLACES: { page: Page; label: string; key: string; view: () => preact.JSX.Element }[] = [
  { page: "query", label: "Query", key: "q", view: QueryPage },
  { page: "explore", label: "Explore", key: "e", view: ExplorePage },
  { page: "schema", label: "Schema", key: "s", view: SchemaPage },
  { page: "history", label: "History", key: "h", view: HistoryPage },
  { page: "review", label: "Review", key: "r", view: ReviewPage },
  { page: "operate", label: "Operate", key: "o", view: OperatePage },
];
const THEME = "omnigraph-theme";

export function App() {
  const route = useRoute();
  const [token] = useState(readToken);
  const [refused, setRefused] = useState<string | null>(null);
  const [opened, setOpened] = useState<"palette" | "keys" | null>(null);
  const [notice, setNotice] = useState<{ text: string; kind: "info" | "error" } | null>(null);

  const graphs = useData(async (signal) => get<{ graphs: { graph_id: string }[] }>("graphs", {}, signal), [token]);
  const ids = graphs.value?.graphs.map((item) => item.graph_id) ?? [];
  const types = useTypes(route);
  const branches = useData(
    async (signal) => (route.graph ? get<{ branches: string[] }>(graphPath(route.graph, "/branches"), {}, signal) : { branches: [] }),
    [route.graph, token],
  );
  const permissions = usePermissions(route.graph, branchOf(route));

  useEffect(() => {
    const listen = (event: Event) => setRefused((event as CustomEvent<string>).detail ?? "missing bearer token");
    addEventListener("studio-unauthorized", listen);
    return () => removeEventListener("studio-unauthorized", listen);
  }, []);
  useEffect(() => {
    if (!route.graph && ids.length) navigate({ graph: ids[0] }, { replace: true });
  }, [route.graph, ids.join()]);
  useEffect(() => {
    const place = PLACES.find((item) => item.page === route.page) ?? PLACES[0];
    document.title = `${place.label} · ${route.graph || "OmniGraph"} · Studio`;
  }, [route.page, route.graph]);
  useEffect(() => {
    if (!notice) return;
    const timer = setTimeout(() => setNotice(null), 6000);
    return () => clearTimeout(timer);
  }, [notice]);

  const notify = useCallback((text: string, kind: "info" | "error" = "info") => setNotice({ text, kind }), []);
  const session: Session = {
    route,
    types: types.value,
    branches: branches.value?.branches ?? [],
    permissions,
    reloadBranches: branches.reload,
    reloadTypes: types.reload,
    notify,
  };
  const commands = useMemo(() => commandsOf(route, ids, session.branches), [route, ids.join(), session.branches.join()]);
  useShortcuts(setOpened, route);

  if (refused)
    return (
      <SignIn
        reason={refused}
        onToken={(given) => {
          storeToken(given);
          // All that is loaded belongs to the caller before.
          location.reload();
        }}
      />
    );
  const Current = (PLACES.find((item) => item.page === route.page) ?? PLACES[0]).view;
  return (
    <SessionContext.Provider value={session}>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")!.focus())}>
        Skip to content
      </a>
      <div class="frame">
        <header class="top">
          <a class="brand" href={hrefOf(patchRoute(route, { page: "query" }))} aria-label="OmniGraph Studio">
            <img src="icon.svg" alt="" width="24" height="24" />
            <span>Studio</span>
          </a>
          <MomentBar graphs={ids} />
          <div class="top-end">
            <Button kind="quiet" icon="search" aria-label="Open the command palette" title="Commands (Ctrl K)" onClick={() => setOpened("palette")} />
            <Button kind="quiet" icon="sun" aria-label="Switch between light and dark" title="Light or dark (t)" onClick={switchTheme} />
            {token && (
              <Button
                kind="quiet"
                icon="key"
                aria-label={`Sign out${permissions?.actor_id ? ` ${permissions.actor_id}` : ""}`}
                title={`Sign out ${permissions?.actor_id ?? ""}`}
                onClick={() => (storeToken(null), location.reload())}
              >
                <span class="actor">{permissions?.actor_id}</span>
              </Button>
            )}
          </div>
        </header>
        <nav class="side" aria-label="Pages">
          {PLACES.map((item) => (
            <a
              key={item.page}
              href={hrefOf(patchRoute(route, { page: item.page }))}
              aria-current={item.page === route.page ? "page" : undefined}
              title={`${item.label} (g ${item.key})`}
            >
              <Icon name={item.page} />
              <span>{item.label}</span>
            </a>
          ))}
        </nav>
        <main id="main" tabIndex={-1} class={`page-${route.page}`}>
          {route.graph ? (
            <Current key={`${route.graph}/${route.page}`} />
          ) : graphs.loading ? null : graphs.error ? (
            <PickGraph error={graphs.error.status === 403 ? undefined : <ErrorBox error={graphs.error} />} />
          ) : (
            <Empty title="This server serves no graphs." />
          )}
        </main>
      </div>
      {opened === "palette" && <Palette commands={commands} onClose={() => setOpened(null)} />}
      {opened === "keys" && <Shortcuts onClose={() => setOpened(null)} />}
      <div class="notices" role="status" aria-live="polite">
        {notice && <p class={`notice ${notice.kind}`}>{notice.text}</p>}
      </div>
    </SessionContext.Provider>
  );
}

function PickGraph({ error }: { error?: preact.JSX.Element }) {
  const [id, setId] = useState("");
  return (
    <form
      class="card narrow"
      onSubmit={(event) => {
        event.preventDefault();
        navigate({ graph: id.trim() });
      }}
    >
      <h1>Open a graph</h1>
      {error ?? <p class="muted">The policy does not let you list the graphs of this server. Enter the id of a graph.</p>}
      <label class="field">
        <span class="field-label">Graph id</span>
        <input value={id} onInput={(event) => setId(event.currentTarget.value)} required />
      </label>
      <Button kind="primary" type="submit">Open</Button>
    </form>
  );
}

function Shortcuts({ onClose }: { onClose: () => void }) {
  const keys: [string, string][] = [
    ["Ctrl K", "Command palette"],
    ["Ctrl Enter", "Run the query, or the plan of a migration"],
    ["b", "Choose a branch"],
    ["t", "Light or dark"],
    ["?", "This list"],
    ...PLACES.map((item): [string, string] => [`g ${item.key}`, item.label]),
    ["Esc, then Tab", "Leave the editor"],
  ];
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <dl class="keys">
        {keys.map(([key, text]) => (
          <div key={key}>
            <dt>{key.split(" ").map((part) => <kbd key={part}>{part}</kbd>)}</dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}

function commandsOf(route: Route, graphs: string[], branches: string[]): Command[] {
  return [
    ...PLACES.map((item) => ({ label: `Go to ${item.label}`, hint: `g ${item.key}`, run: () => navigate({ page: item.page }) })),
    ...branches.map((name) => ({ label: `Branch ${name}`, hint: "branch", run: () => navigate({ params: { branch: name, at: "" } }) })),
    ...graphs.filter((id) => id !== route.graph).map((id) => ({ label: `Graph ${id}`, hint: "graph", run: () => navigate({ graph: id }) })),
    { label: "Go to now", hint: "moment", run: () => navigate({ params: { at: "" } }) },
    { label: "Switch between light and dark", hint: "t", run: switchTheme },
    { label: "Copy the link of this view", hint: "", run: () => void navigator.clipboard?.writeText(location.href) },
  ];
}

function switchTheme(): void {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem(THEME, root.dataset.theme);
  dispatchEvent(new Event("studio-theme"));
}

const stored = localStorage.getItem(THEME);
if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;

function useShortcuts(open: (what: "palette" | "keys") => void, route: Route): void {
  useEffect(() => {
    let prefix = 0;
    const listen = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        open("palette");
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog, [contenteditable=true]")) return;
      if (Date.now() - prefix < 1500) {
        prefix = 0;
        const place = PLACES.find((item) => item.key === event.key);
        if (place) navigate({ page: place.page });
        return;
      }
      if (event.key === "g") prefix = Date.now();
      else if (event.key === "?") open("keys");
      else if (event.key === "t") switchTheme();
      else if (event.key === "b") document.querySelector<HTMLElement>("#branch-picker")?.focus();
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, [route.graph]);
}
