// The graph as a picture that one can pan, zoom and drag. Sigma draws it with WebGL.
import Graph from "graphology";
import type { Attributes } from "graphology-types";
import forceAtlas2 from "graphology-layout-forceatlas2";
import { useEffect, useImperativeHandle, useRef, useState } from "preact/hooks";
import type { Ref } from "preact";
import Sigma from "sigma";
import { colourOf, cssValue } from "../lib/colours";
import { plural } from "../lib/format";
import { Button } from "./ui";

export interface ViewNode {
  key: string;
  type: string;
  label: string;
  pinned?: boolean;
  /** Instead of the colour of the type. */
  colour?: string;
}
export interface ViewEdge {
  key: string;
  source: string;
  target: string;
  type: string;
}
export interface GraphControl {
  centre: (key: string) => void;
}

interface Props {
  nodes: ViewNode[];
  edges: ViewEdge[];
  types: string[];
  chosen?: string;
  onChoose?: (key: string | undefined) => void;
  onExpand?: (key: string) => void;
  onPin?: (key: string) => void;
  control?: Ref<GraphControl>;
  label: string;
}

// The layout stops after so many steps, fewer for large graphs.
const STEPS = 400;

export function GraphView(props: Props) {
  const place = useRef<HTMLDivElement>(null);
  const graph = useRef(new Graph({ multi: true, type: "directed" }));
  const sigma = useRef<Sigma | undefined>(undefined);
  const newest = useRef(props);
  newest.current = props;
  const frame = useRef(0);
  const [broken, setBroken] = useState(false);

  useImperativeHandle(props.control ?? null, () => ({
    centre: (key) => {
      const found = sigma.current?.getNodeDisplayData(key);
      if (found) void sigma.current!.getCamera().animate({ x: found.x, y: found.y, ratio: 0.4 }, { duration: 300 });
    },
  }), []);

  useEffect(() => {
    let view: Sigma;
    try {
      view = new Sigma(graph.current, place.current!, {
        allowInvalidContainer: true,
        defaultEdgeType: "arrow",
        labelDensity: 0.6,
        labelGridCellSize: 110,
        labelRenderedSizeThreshold: 5,
        labelFont: "system-ui, sans-serif",
        labelSize: 12,
        edgeLabelSize: 10,
        edgeLabelFont: "system-ui, sans-serif",
        renderEdgeLabels: false,
        minCameraRatio: 0.02,
        maxCameraRatio: 4,
        stagePadding: 40,
        zIndex: true,
        defaultDrawNodeHover: drawHover,
        nodeReducer: (key, data) => reduceNode(key, data),
        edgeReducer: (key, data) => reduceEdge(key, data),
      });
    } catch {
      setBroken(true);
      return;
    }
    sigma.current = view;
    colourLabels(view);
    let dragged: string | null = null;
    let moved = false;
    let hovered: string | undefined;
    view.on("enterNode", ({ node }) => ((hovered = node), (place.current!.style.cursor = "pointer"), setHovered(hovered)));
    view.on("leaveNode", () => ((hovered = undefined), (place.current!.style.cursor = ""), setHovered(undefined)));
    view.on("clickNode", ({ node }) => !moved && newest.current.onChoose?.(node));
    view.on("doubleClickNode", ({ node, preventSigmaDefault }) => (preventSigmaDefault(), newest.current.onExpand?.(node)));
    view.on("clickStage", () => newest.current.onChoose?.(undefined));
    view.on("downNode", ({ node }) => {
      dragged = node;
      moved = false;
      if (!view.getCustomBBox()) view.setCustomBBox(view.getBBox());
    });
    view.on("moveBody", ({ event }) => {
      if (!dragged) return;
      moved = true;
      const at = view.viewportToGraph(event);
      graph.current.mergeNodeAttributes(dragged, { x: at.x, y: at.y, fixed: true });
      event.preventSigmaDefault();
    });
    const drop = () => {
      if (dragged && moved) newest.current.onPin?.(dragged);
      dragged = null;
    };
    view.on("upNode", drop);
    view.on("upStage", drop);
    const themed = () => (colourLabels(view), view.refresh());
    addEventListener("studio-theme", themed);
    return () => {
      cancelAnimationFrame(frame.current);
      removeEventListener("studio-theme", themed);
      view.kill();
    };
  }, []);

  const hover = useRef<string | undefined>(undefined);
  const setHovered = (key: string | undefined) => {
    hover.current = key;
    sigma.current?.refresh({ skipIndexation: true });
  };

  const focus = (): string | undefined => {
    const { chosen } = newest.current;
    return hover.current ?? (chosen && graph.current.hasNode(chosen) ? chosen : undefined);
  };
  const reduceNode = (key: string, data: Attributes) => {
    const around = focus();
    const near = !around || around === key || graph.current.areNeighbors(around, key);
    return {
      ...data,
      color: near ? data.color : cssValue("--faint"),
      label: near ? data.label : "",
      forceLabel: around ? key === around || (near && graph.current.degree(around) < 40) : false,
      highlighted: key === newest.current.chosen,
      zIndex: near ? 1 : 0,
    };
  };
  const reduceEdge = (key: string, data: Attributes) => {
    const around = focus();
    if (!around) return { ...data, color: cssValue("--edge") };
    const near = graph.current.hasExtremity(key, around);
    return { ...data, color: near ? cssValue("--accent") : cssValue("--faint-edge"), zIndex: near ? 1 : 0, size: near ? 2 : 1 };
  };

  useEffect(() => {
    if (sync(graph.current, props)) run();
  }, [props.nodes, props.edges]);
  useEffect(() => void sigma.current?.refresh({ skipIndexation: true }), [props.chosen]);

  /** Compute the layout, a few steps for each frame, so that the page stays responsive. */
  function run(): void {
    cancelAnimationFrame(frame.current);
    const order = graph.current.order;
    if (order < 2) return;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const settings = { ...forceAtlas2.inferSettings(order), barnesHutOptimize: order > 300, gravity: 0.6, scalingRatio: 12, slowDown: 3, adjustSizes: false };
    let left = Math.max(60, Math.round(STEPS / (1 + order / 400)));
    sigma.current?.setCustomBBox(null);
    const step = () => {
      const until = performance.now() + 24;
      do {
        forceAtlas2.assign(graph.current, { iterations: 4, settings });
        left -= 4;
      } while (left > 0 && (still || performance.now() < until));
      if (left > 0) frame.current = requestAnimationFrame(step);
      else place.current?.setAttribute("data-settled", "true");
    };
    place.current?.removeAttribute("data-settled");
    frame.current = requestAnimationFrame(step);
  }

  const zoom = (factor: number) => void sigma.current?.getCamera().animatedZoom({ factor, duration: 150 });
  const colours = new Map(props.nodes.map((item) => [item.type, item.colour ?? colourOf(item.type, props.types)]));
  return (
    <div class="graph">
      <div
        class="graph-canvas"
        ref={place}
        role="img"
        aria-label={`${props.label}: ${plural(props.nodes.length, "node")}, ${plural(props.edges.length, "edge")}`}
        data-nodes={props.nodes.length}
        data-edges={props.edges.length}
      />
      {broken && <p class="graph-broken" role="alert">This browser has no WebGL, so there is no picture. The lists have the same data.</p>}
      <ul class="legend" aria-label="Types">
        {[...colours].sort().map(([name, colour]) => (
          <li key={name}>
            <span class="swatch" style={{ background: colour }} />
            {name}
          </li>
        ))}
      </ul>
      <div class="graph-zoom">
        <Button kind="quiet" aria-label="Zoom in" onClick={() => zoom(1.5)}>+</Button>
        <Button kind="quiet" aria-label="Zoom out" onClick={() => zoom(1 / 1.5)}>−</Button>
        <Button kind="quiet" aria-label="Fit the picture" onClick={() => (sigma.current?.setCustomBBox(null), void sigma.current?.getCamera().animatedReset({ duration: 200 }))}>Fit</Button>
      </div>
    </div>
  );
}

/** Add and remove what changed, and return whether the layout must run again. New nodes start beside a neighbour. */
function sync(graph: Graph, { nodes, edges, types }: Props): boolean {
  const kept = new Set(nodes.map((item) => item.key));
  const keptEdges = new Set(edges.map((item) => item.key));
  let changed = false;
  graph.forEachEdge((key) => !keptEdges.has(key) && graph.dropEdge(key));
  graph.forEachNode((key) => {
    if (kept.has(key)) return;
    graph.dropNode(key);
    changed = true;
  });
  const beside = new Map<string, string>();
  for (const item of edges) {
    if (graph.hasNode(item.source)) beside.set(item.target, item.source);
    if (graph.hasNode(item.target)) beside.set(item.source, item.target);
  }
  nodes.forEach((item, number) => {
    const attributes = { label: item.label, color: item.colour ?? colourOf(item.type, types), fixed: !!item.pinned };
    if (graph.hasNode(item.key)) {
      graph.mergeNodeAttributes(item.key, attributes);
      return;
    }
    const parent = beside.get(item.key);
    const angle = number * 2.399963;
    const radius = parent ? 1 : Math.sqrt(number + 1) * 4;
    const x = (parent ? (graph.getNodeAttribute(parent, "x") as number) : 0) + Math.cos(angle) * radius;
    const y = (parent ? (graph.getNodeAttribute(parent, "y") as number) : 0) + Math.sin(angle) * radius;
    graph.addNode(item.key, { ...attributes, x, y, size: 6 });
    changed = true;
  });
  for (const item of edges) {
    if (graph.hasEdge(item.key) || !graph.hasNode(item.source) || !graph.hasNode(item.target)) continue;
    graph.addDirectedEdgeWithKey(item.key, item.source, item.target, { size: 1, label: item.type });
    changed = true;
  }
  // Many nodes are small, so that they do not cover each other.
  const scale = Math.min(1, Math.sqrt(250 / graph.order));
  graph.forEachNode((key) => graph.setNodeAttribute(key, "size", scale * Math.min(18, 5 + Math.sqrt(graph.degree(key)) * 1.4)));
  return changed;
}

function colourLabels(view: Sigma): void {
  view.setSetting("labelColor", { color: cssValue("--text") });
}

function drawHover(context: CanvasRenderingContext2D, data: { x: number; y: number; size: number; label: string | null; color: string }): void {
  context.beginPath();
  context.arc(data.x, data.y, data.size + 4, 0, Math.PI * 2);
  context.strokeStyle = cssValue("--accent");
  context.lineWidth = 2;
  context.stroke();
  if (!data.label) return;
  context.font = "600 12px system-ui, sans-serif";
  const width = context.measureText(data.label).width;
  context.fillStyle = cssValue("--panel");
  context.beginPath();
  context.roundRect(data.x + data.size + 4, data.y - 10, width + 12, 20, 5);
  context.fill();
  context.fillStyle = cssValue("--text");
  context.fillText(data.label, data.x + data.size + 10, data.y + 4);
}
