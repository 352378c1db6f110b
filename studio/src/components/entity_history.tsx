// The versions of one entity, and the commit that set each of its properties.
import { useState } from "preact/hooks";
import { get, graphPath, placeOf } from "../lib/api";
import { useData, useSession } from "../lib/data";
import { formatTime } from "../lib/format";
import { branchOf, navigate } from "../lib/route";
import type { Commit, EntityChange, Image, Value } from "../lib/types";
import { EntityChangeCard } from "./changes";
import { CommitLine } from "./commit_line";
import { Button, Empty, ErrorBox, Field, Loading } from "./ui";
import { ValueText } from "./value";

interface Version {
  commit: Commit;
  operation: string;
  op: EntityChange["op"] | "unknown";
  before?: Image | null;
  after?: Image | null;
  gap: boolean;
}
interface Origin {
  property: string;
  value: Value;
  commit: Commit;
  operation: string;
  exact: boolean;
}

export function EntityHistory() {
  const { route, types } = useSession();
  const entities = [...(types?.nodes ?? []), ...(types?.edges ?? [])].map((item) => item.name);
  const { type = entities[0] ?? "", id = "" } = route.params;
  const [typedType, setType] = useState<string>();
  const [typedId, setId] = useState<string>();
  const query = { type, id, ...placeOf(route) };
  const keys = [route.graph, type, id, branchOf(route), route.params.at];
  const versions = useData(async (signal) => (type && id ? get<{ versions: Version[] }>(graphPath(route.graph, "/history"), query, signal) : undefined), keys);
  const blame = useData(async (signal) => (type && id ? get<{ properties: Origin[] }>(graphPath(route.graph, "/blame"), query, signal) : undefined), keys);
  return (
    <>
      <form
        class="compare-states"
        onSubmit={(event) => {
          event.preventDefault();
          navigate({ params: { type: typedType ?? type, id: (typedId ?? id).trim() } });
        }}
      >
        <Field label="Type">
          <select value={typedType ?? type} onChange={(event) => setType(event.currentTarget.value)}>
            {entities.map((name) => <option key={name}>{name}</option>)}
          </select>
        </Field>
        <Field label="Id">
          <input value={typedId ?? id} required onInput={(event) => setId(event.currentTarget.value)} />
        </Field>
        <Button kind="primary" type="submit">Show</Button>
      </form>
      <ErrorBox error={versions.error} />
      {!id ? (
        <Empty title="Enter the id of a node or an edge">Its versions are listed here, with the commit that set each property.</Empty>
      ) : !versions.value ? (
        versions.loading && <Loading />
      ) : (
        <div class="entity-split">
          <section aria-label="Versions" class="versions">
            <h2>{versions.value.versions.length === 1 ? "1 version" : `${versions.value.versions.length} versions`} of {type} {id}</h2>
            {versions.value.versions.map((item) => (
              <article key={item.commit.graph_commit_id} class="version">
                <CommitLine commit={item.commit} />
                {item.gap && <p class="note">Older states were removed or may not be read, so this change may be older.</p>}
                <EntityChangeCard change={changeOf(item, type, id)} names={["Before", "After"]} />
              </article>
            ))}
          </section>
          <section aria-label="Blame" class="card blame">
            <h2>Who set what</h2>
            {blame.error && <p class="muted">{blame.error.message}</p>}
            <table class="plain-table">
              <thead>
                <tr><th scope="col">Property</th><th scope="col">Value</th><th scope="col">Commit</th></tr>
              </thead>
              <tbody>
                {blame.value?.properties.map((item) => (
                  <tr key={item.property} data-property={item.property}>
                    <th scope="row">{item.property}</th>
                    <td><ValueText value={item.value} /></td>
                    <td>
                      {item.commit.message || item.operation}
                      <span class="muted small block">{item.commit.actor_id ?? "no actor"} · {formatTime(item.commit.created_at)}{item.exact ? "" : " or earlier"}</span>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </section>
        </div>
      )}
    </>
  );
}

const changeOf = (version: Version, type: string, id: string): EntityChange => ({
  kind: "node",
  type: { id: "", name: type },
  id,
  op: version.op === "unknown" ? "insert" : version.op,
  before: version.before ?? undefined,
  after: version.after ?? undefined,
});
