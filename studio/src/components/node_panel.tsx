// The chosen node: its properties, and its edges with a button to follow each type of them.
import { useData, useSession } from "../lib/data";
import { splitKey, readNeighbors, type PictureNode } from "../lib/exploration";
import { branchOf, hrefOf, patchRoute } from "../lib/route";
import { formatCount } from "../lib/format";
import { Badge, Button, ErrorBox } from "./ui";
import { ValueText } from "./value";

interface Props {
  node: PictureNode;
  label: string;
  pinned: boolean;
  /** How many of the edges of a type and direction are in the picture. */
  shownOf: (edge: string, direction: "out" | "in") => number;
  onExpand: (along?: { edge: string; direction: "out" | "in" }) => void;
  onPin: () => void;
  onHide: () => void;
}

export function NodePanel({ node, label, pinned, shownOf, onExpand, onPin, onHide }: Props) {
  const { route, types } = useSession();
  const around = useData((signal) => readNeighbors(route, node.key, 1, undefined, signal), [route.graph, branchOf(route), route.params.at, node.key]);
  const counts = around.value?.counts.filter((item) => item.count > 0) ?? [];
  const [, id] = splitKey(node.key);
  const farEnd = (edge: string, direction: "out" | "in") => {
    const found = types?.edges.find((item) => item.name === edge);
    return direction === "out" ? found?.target : found?.source;
  };
  return (
    <section class="node-panel" aria-label="Chosen node">
      <h2>{label}</h2>
      <p class="muted">
        {node.type} · <code>{id}</code> {pinned && <Badge tone="accent">pinned</Badge>}
      </p>
      <div class="row">
        <Button icon="expand" id="expand" title="Expand (e)" onClick={() => onExpand()}>Expand</Button>
        <Button icon="pin" aria-pressed={pinned} title="Pin (p)" onClick={onPin}>{pinned ? "Unpin" : "Pin"}</Button>
        <Button icon="hide" title="Hide (x)" onClick={onHide}>Hide</Button>
      </div>
      <ErrorBox error={around.error} />
      {counts.length > 0 && (
        <>
          <h3>Edges</h3>
          <ul class="edge-counts">
            {counts.map(({ edge, direction, count }) => {
              const shown = Math.min(count, shownOf(edge, direction));
              return (
                <li key={edge + direction}>
                  <button type="button" data-edge={edge} data-direction={direction} disabled={shown >= count} onClick={() => onExpand({ edge, direction })}>
                    <span>{direction === "out" ? "→" : "←"} {edge}</span> <span class="muted">{farEnd(edge, direction)}</span>
                    <span class="spacer" />
                    <span class="edge-count">{shown >= count ? formatCount(count) : `${formatCount(shown)} of ${formatCount(count)}`}</span>
                  </button>
                </li>
              );
            })}
          </ul>
        </>
      )}
      <h3>Properties</h3>
      <dl class="node-properties">
        {Object.entries(node.properties).map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd><ValueText value={value} /></dd>
          </div>
        ))}
      </dl>
      <p class="row">
        <a href={hrefOf(patchRoute(route, { page: "history", params: { view: "entity", type: node.type, id } }))}>History</a>
        <a href={hrefOf(patchRoute(route, { params: { type: node.type, id, text: "", x: "", chosen: node.key } }))}>Only this node</a>
      </p>
    </section>
  );
}
