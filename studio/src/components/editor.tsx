// A CodeMirror editor for `.gq` and `.pg` that the server checks while the user types.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { bracketMatching, indentOnInput, indentUnit } from "@codemirror/language";
import { linter, lintKeymap, type Diagnostic as Marked } from "@codemirror/lint";
import { searchKeymap } from "@codemirror/search";
import { Annotation, EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers, placeholder } from "@codemirror/view";
import { useEffect, useRef } from "preact/hooks";
import { completeGq, completePg, gq, highlighting, pg } from "../lib/languages";
import type { Diagnostic, Types } from "../lib/types";

// Marks a change that comes from the page and not from the user.
const fromPage = Annotation.define<boolean>();

interface Props {
  language: "gq" | "pg";
  value: string;
  label: string;
  types?: Types;
  onChange: (text: string) => void;
  onRun?: () => void;
  check?: (text: string) => Promise<Diagnostic[]>;
  readOnly?: boolean;
}

export function Editor(props: Props) {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | undefined>(undefined);
  const newest = useRef(props);
  newest.current = props;
  // The texts that the page has been given and has not rendered yet.
  const given = useRef<string[]>([]);
  const rendered = useRef(props.value);

  useEffect(() => {
    const nonce = document.querySelector<HTMLMetaElement>('meta[name="studio-nonce"]')!.content;
    const isQuery = props.language === "gq";
    view.current = new EditorView({
      parent: place.current!,
      state: EditorState.create({
        doc: props.value,
        extensions: [
          EditorView.cspNonce.of(nonce),
          EditorView.contentAttributes.of({ "aria-label": props.label }),
          EditorView.lineWrapping,
          EditorState.readOnly.of(!!props.readOnly),
          lineNumbers(),
          history(),
          drawSelection(),
          indentOnInput(),
          indentUnit.of("  "),
          bracketMatching(),
          closeBrackets(),
          highlightActiveLine(),
          placeholder(isQuery ? "query people() { match { $p: Person } return { $p.name } }" : "node Person { name: String @key }"),
          isQuery ? gq : pg,
          highlighting,
          autocompletion({ override: [isQuery ? completeGq(() => newest.current.types) : completePg], icons: false }),
          linter(lint, { delay: 350 }),
          keymap.of([
            { key: "Mod-Enter", run: () => (newest.current.onRun?.(), true) },
            // The Escape key gives the Tab key back to the browser, so that the keyboard is never trapped.
            ...closeBracketsKeymap, ...completionKeymap, ...defaultKeymap, ...searchKeymap, ...historyKeymap, ...lintKeymap, indentWithTab,
          ]),
          EditorView.updateListener.of((update) => {
            if (!update.docChanged || update.transactions.some((item) => item.annotation(fromPage))) return;
            const text = update.state.doc.toString();
            given.current.push(text);
            newest.current.onChange(text);
          }),
        ],
      }),
    });
    return () => view.current!.destroy();
  }, []);

  useEffect(() => {
    // A render can be older than the text: what the user has typed since must stay.
    const place = given.current.indexOf(props.value);
    given.current.splice(0, place + 1);
    const isOld = place >= 0 || props.value === rendered.current;
    rendered.current = props.value;
    if (isOld) return;
    const editor = view.current!;
    const text = editor.state.doc.toString();
    if (props.value !== text) editor.dispatch({ changes: { from: 0, to: text.length, insert: props.value }, annotations: fromPage.of(true) });
  });

  async function lint(editor: EditorView): Promise<Marked[]> {
    const { check } = newest.current;
    const text = editor.state.doc.toString();
    if (!check || !text.trim()) return [];
    const found = await check(text);
    const places = byteOffsets(text);
    return found.map((item) => {
      const from = item.start === null ? 0 : places(item.start);
      const to = item.end === null ? Math.min(text.length, from + 1) : Math.max(from + 1, places(item.end));
      return {
        from: Math.min(from, text.length),
        to: Math.min(to, text.length),
        severity: item.severity,
        message: item.hint ? `${item.message}\n${item.hint}` : item.message,
      };
    });
  }

  return <div class="editor" ref={place} />;
}

/** Return a function from a byte offset in UTF-8 to an offset in the text. */
function byteOffsets(text: string): (bytes: number) => number {
  if (/^[\x00-\x7f]*$/.test(text)) return (bytes) => bytes;
  const decoder = new TextDecoder();
  const data = new TextEncoder().encode(text);
  return (bytes) => decoder.decode(data.subarray(0, bytes)).length;
}
