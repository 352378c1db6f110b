// The types of a schema as a picture: node types as cards, edge types as arrows.
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { colourOf } from "../lib/colours";
import { formatCount } from "../lib/format";
import { CARD, layOut } from "../lib/schema_layout";
import type { Types } from "../lib/types";
import { Button } from "./ui";

interface Props {
  types: Types;
  counts: Map<string, number>;
  chosen: string;
  onChoose: (name: string) => void;
}

export function TypePicture({ types, counts, chosen, onChoose }: Props) {
  const drawing = useMemo(() => layOut(types), [types]);
  const [zoom, setZoom] = useState(1);
  const [room, setRoom] = useState({ width: 800, height: 600 });
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => setRoom({ width: box.current!.clientWidth, height: box.current!.clientHeight }));
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  // The picture fills the room, unless its text would become too small or too large.
  const fit = Math.max(0.62, Math.min(1.15, room.width / drawing.width, room.height / drawing.height));
  const scale = fit * zoom;
  const names = types.nodes.map((item) => item.name);
  const edge = types.edges.find((item) => item.name === chosen);
  const choose = (name: string) => ({
    // In SVG the names of attributes are case-sensitive.
    tabindex: 0,
    "data-type": name,
    role: "button" as const,
    "aria-pressed": name === chosen,
    onClick: () => onChoose(name),
    onKeyDown: (event: KeyboardEvent) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      onChoose(name);
    },
  });
  return (
    <div class="picture">
      <div class="picture-scroll" ref={box} tabIndex={0} role="region" aria-label="Types as a picture">
        <svg
          viewBox={`0 0 ${drawing.width} ${drawing.height}`}
          width={drawing.width * scale}
          height={drawing.height * scale}
          role="group"
          aria-label={`${types.nodes.length} node types and ${types.edges.length} edge types`}
        >
          <defs>
            {["arrow", "arrow-chosen"].map((id) => (
              <marker key={id} id={id} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse">
                <path d="M0 0.500L8 4 0 7.500z" />
              </marker>
            ))}
          </defs>
          {drawing.lines.map((line) => (
            <g key={line.name} class={`type-edge${line.name === chosen ? " chosen" : ""}`} {...choose(line.name)}>
              <path class="reach" d={line.path} />
              <path class="line" d={line.path} marker-end={`url(#${line.name === chosen ? "arrow-chosen" : "arrow"})`} />
              <text x={line.x} y={line.y - 4}>{line.name}</text>
            </g>
          ))}
          {drawing.cards.map((card) => {
            const near = edge && (edge.source === card.name || edge.target === card.name);
            return (
              <g
                key={card.name}
                class={`type-card${card.name === chosen ? " chosen" : near ? " near" : ""}`}
                transform={`translate(${card.x} ${card.y})`}
                {...choose(card.name)}
              >
                <rect width={CARD.width} height={CARD.height} rx="9" />
                <circle cx="20" cy={CARD.height / 2} r="5.5" fill={colourOf(card.name, names)} />
                <text class="name" x="36" y="25">{card.name.length > 16 ? `${card.name.slice(0, 15)}…` : card.name}</text>
                <text class="count" x="36" y="43">{counts.has(card.name) ? `${formatCount(counts.get(card.name)!)}` : "…"}</text>
              </g>
            );
          })}
        </svg>
      </div>
      <div class="graph-zoom">
        <Button kind="quiet" aria-label="Zoom in" onClick={() => setZoom(Math.min(3, zoom * 1.2))}>+</Button>
        <Button kind="quiet" aria-label="Zoom out" onClick={() => setZoom(Math.max(0.3, zoom / 1.2))}>−</Button>
      </div>
    </div>
  );
}
