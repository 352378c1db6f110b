// The queries of the server, those that are saved in this browser, and those that were run in it.
import { useState } from "preact/hooks";
import type { Loaded } from "../lib/data";
import { useSession } from "../lib/data";
import { formatAge } from "../lib/format";
import type { Past, Saved } from "../lib/kept_queries";
import { hrefOf, patchRoute } from "../lib/route";
import type { StoredQuery } from "../lib/types";
import { Badge, Button, ErrorBox } from "./ui";

interface Props {
  catalog: Loaded<{ queries: StoredQuery[] }>;
  stored: string;
  saved: Saved[];
  past: Past[];
  /** The text that can be saved; empty for a stored query. */
  text: string;
  onSave: (saved: Saved) => void;
  onRemove: (name: string) => void;
  onOpen: (text: string) => void;
  onClear: () => void;
  onStored: () => void;
}

export function QueryLibrary({ catalog, stored, saved, past, text, onSave, onRemove, onOpen, onClear, onStored }: Props) {
  const { route } = useSession();
  return (
    <aside class="library" aria-label="Library">
      <h2>On the server</h2>
      <ErrorBox error={catalog.error} />
      {catalog.value?.queries.length === 0 && <p class="muted">This graph has no stored queries.</p>}
      <ul class="list">
        {catalog.value?.queries.map((item) => (
          <li key={item.name}>
            <a
              href={hrefOf(patchRoute(route, { params: { stored: item.name, q: "", name: "", p: "" } }))}
              aria-current={item.name === stored ? "true" : undefined}
              onClick={onStored}
            >
              <strong>{item.name}</strong> {item.mutation && <Badge tone="change">writes</Badge>}
              {item.description && <span class="muted">{item.description}</span>}
            </a>
          </li>
        ))}
      </ul>
      <h2>Saved in this browser</h2>
      {text.trim() && <SaveForm suggested={/\bquery\s+(\w+)/.exec(text)?.[1] ?? ""} onSave={(name) => onSave({ name, text })} />}
      <ul class="list saved">
        {saved.map((item) => (
          <li key={item.name} class="row">
            <button type="button" class="past" onClick={() => onOpen(item.text)}>{item.name}</button>
            <Button kind="quiet" icon="close" aria-label={`Remove ${item.name}`} onClick={() => onRemove(item.name)} />
          </li>
        ))}
      </ul>
      <div class="row">
        <h2>History</h2>
        <span class="spacer" />
        {past.length > 0 && <Button kind="quiet" onClick={onClear}>Clear</Button>}
      </div>
      {!past.length && <p class="muted">Queries that you run here are listed on this device.</p>}
      <ul class="list">
        {past.map((item) => (
          <li key={item.when}>
            <button type="button" class="past" onClick={() => onOpen(item.text)}>
              <code>{item.text.replace(/\s+/g, " ").slice(0, 110)}</code>
              <span class="muted">{formatAge(item.when * 1000)}</span>
            </button>
          </li>
        ))}
      </ul>
    </aside>
  );
}

function SaveForm({ suggested, onSave }: { suggested: string; onSave: (name: string) => void }) {
  const [name, setName] = useState<string>();
  return (
    <form
      class="row save-query"
      onSubmit={(event) => {
        event.preventDefault();
        onSave((name ?? suggested).trim());
        setName(undefined);
      }}
    >
      <input aria-label="Name to save the query under" required value={name ?? suggested} onInput={(event) => setName(event.currentTarget.value)} />
      <Button type="submit">Save</Button>
    </form>
  );
}
