// Small building blocks: icons, buttons, errors, dialogs and tabs.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import type { ApiError } from "../lib/api";

const PATHS: Record<string, string> = {
  query: "M4 6l5 6-5 6M12 18h8",
  explore: "M6 7a2 2 0 100-4 2 2 0 000 4zM18 10a2 2 0 100-4 2 2 0 000 4zM9 21a2 2 0 100-4 2 2 0 000 4zM8 5.5l8 2M6.500 7l2 10M16.500 9.500l-6 8",
  schema: "M4 4h7v6H4zM13 14h7v6h-7zM7.500 10v7H13",
  history: "M7 5v14M7 12c6 0 10-1 10-5M7 5a2 2 0 100-.01M7 21a2 2 0 100-.01M17 6a2 2 0 100-.01",
  review: "M5 4h14v16H5zM8.500 12.500l2.500 2.500 4.500-5",
  operate: "M3 12h4l3-8 4 16 3-8h4",
  search: "M10.500 17a6.500 6.500 0 100-13 6.500 6.500 0 000 13zM15.500 15.500L20 20",
  branch: "M7 4v16M7 14c0-5 10-2 10-8M17 6a1.500 1.500 0 100-.01",
  clock: "M12 20a8 8 0 100-16 8 8 0 000 16zM12 8v4l3 2",
  play: "M8 5l11 7-11 7z",
  close: "M6 6l12 12M18 6L6 18",
  sun: "M12 16a4 4 0 100-8 4 4 0 000 8zM12 2v3M12 19v3M2 12h3M19 12h3M5 5l2 2M17 17l2 2M19 5l-2 2M7 17l-2 2",
  key: "M14 10a4 4 0 10-3.500 4L13 16h2v2h2v2h3v-3l-6-6zM8.500 9.500h.01",
  plus: "M12 5v14M5 12h14",
  pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
  hide: "M3 12s3.500-6 9-6 9 6 9 6-3.500 6-9 6-9-6-9-6zM4 4l16 16",
  expand: "M12 12m-2 0a2 2 0 104 0 2 2 0 10-4 0M12 3v4M12 17v4M3 12h4M17 12h4",
  down: "M6 9l6 6 6-6",
};

export function Icon({ name }: { name: keyof typeof PATHS | string }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

type ButtonProps = JSX.IntrinsicElements["button"] & { kind?: "primary" | "plain" | "danger" | "quiet"; icon?: string };
export function Button({ kind = "plain", icon, children, class: name = "", ...rest }: ButtonProps) {
  return (
    <button type="button" class={`button ${kind} ${name}`} {...rest}>
      {icon && <Icon name={icon} />}
      {children}
    </button>
  );
}

export function ErrorBox({ error, children }: { error?: ApiError; children?: ComponentChildren }) {
  if (!error) return null;
  return (
    <div class="error-box" role="alert">
      <strong>{error.status === 403 ? "Not allowed" : "That did not work"}</strong>
      <p>{error.message}</p>
      {error.hint && <p class="muted">{error.hint}</p>}
      {children}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children && <div class="muted">{children}</div>}
    </div>
  );
}

export function Loading({ what = "Loading" }: { what?: string }) {
  return (
    <p class="loading" role="status">
      {what}…
    </p>
  );
}

export interface TabItem {
  id: string;
  label: string;
  hint?: string;
}
export function Tabs({ items, chosen, onChoose, label }: { items: TabItem[]; chosen: string; onChoose: (id: string) => void; label: string }) {
  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    const place = items.findIndex((item) => item.id === chosen);
    const next = items[(place + step + items.length) % items.length];
    onChoose(next.id);
    const list = event.currentTarget as HTMLElement;
    requestAnimationFrame(() => list.querySelector<HTMLElement>('[aria-selected="true"]')?.focus());
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
      {items.map((item) => (
        <button
          type="button"
          role="tab"
          key={item.id}
          data-tab={item.id}
          aria-selected={item.id === chosen}
          tabIndex={item.id === chosen ? 0 : -1}
          onClick={() => onChoose(item.id)}
        >
          {item.label}
          {item.hint && <span class="count">{item.hint}</span>}
        </button>
      ))}
    </div>
  );
}

export function Dialog({ title, onClose, children, wide }: { title: string; onClose: () => void; children: ComponentChildren; wide?: boolean }) {
  const box = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = box.current!;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  return (
    <dialog
      ref={box}
      class={wide ? "dialog wide" : "dialog"}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === box.current && onClose()}
    >
      <div class="dialog-body">
        <header>
          <h2 id={id}>{title}</h2>
          <Button kind="quiet" icon="close" aria-label="Close" onClick={onClose} />
        </header>
        {children}
      </div>
    </dialog>
  );
}

export function Badge({ tone = "plain", children }: { tone?: "plain" | "add" | "remove" | "change" | "accent"; children: ComponentChildren }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

export function Field({ label, children, hint }: { label: string; children: ComponentChildren; hint?: string }) {
  return (
    <label class="field">
      <span class="field-label">
        {label}
        {hint && <span class="muted"> {hint}</span>}
      </span>
      {children}
    </label>
  );
}
