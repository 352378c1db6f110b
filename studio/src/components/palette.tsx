// The command palette: pages, branches and graphs by typing.
import { useMemo, useState } from "preact/hooks";
import { Dialog } from "./ui";

export interface Command {
  label: string;
  hint: string;
  run: () => void;
}

export function Palette({ commands, onClose }: { commands: Command[]; onClose: () => void }) {
  const [text, setText] = useState("");
  const [place, setPlace] = useState(0);
  const found = useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    return commands.filter((item) => words.every((word) => `${item.label} ${item.hint}`.toLowerCase().includes(word))).slice(0, 30);
  }, [text, commands]);
  const run = (command?: Command) => {
    if (!command) return;
    onClose();
    command.run();
  };
  const onKey = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step) {
      event.preventDefault();
      setPlace((old) => (old + step + found.length) % Math.max(1, found.length));
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(found[place]);
    }
  };
  return (
    <Dialog title="Commands" onClose={onClose}>
      <input
        class="palette-input"
        role="combobox"
        aria-label="Command"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={found.length ? `palette-${place}` : undefined}
        autofocus
        value={text}
        placeholder="Page, branch or graph"
        onInput={(event) => (setText(event.currentTarget.value), setPlace(0))}
        onKeyDown={onKey}
      />
      <ul id="palette-list" class="palette" role="listbox" aria-label="Commands">
        {found.map((item, number) => (
          <li
            key={item.label}
            id={`palette-${number}`}
            role="option"
            aria-selected={number === place}
            onMouseEnter={() => setPlace(number)}
            onClick={() => run(item)}
          >
            <span>{item.label}</span>
            <span class="muted">{item.hint}</span>
          </li>
        ))}
        {!found.length && <li role="option" aria-selected="false" class="muted">Nothing matches.</li>}
      </ul>
    </Dialog>
  );
}
