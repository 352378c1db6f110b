// Highlighting and completion of `.gq` and `.pg`.
import type { CompletionContext, CompletionResult } from "@codemirror/autocomplete";
import { HighlightStyle, StreamLanguage, syntaxHighlighting, type StringStream } from "@codemirror/language";
import { tags } from "@lezer/highlight";
import type { Types } from "./types";

const GQ_KEYWORDS = [
  "query", "match", "return", "order", "limit", "skip", "not", "optional", "distinct", "as", "asc", "desc", "insert", "update",
  "delete", "set", "where", "contains", "starts_with", "in", "is", "null", "and", "or", "true", "false",
];
const GQ_FUNCTIONS = [
  "count", "sum", "avg", "min", "max", "collect", "nearest", "search", "fuzzy", "match_text", "bm25", "rrf", "fuse", "snippet",
  "now", "date", "datetime",
];
const PG_KEYWORDS = ["node", "edge", "interface", "implements", "enum", "body"];
const SCALARS = ["String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime", "Blob", "Vector"];
const ANNOTATIONS = ["key", "unique", "index", "description", "instruction", "range", "check", "card", "embed", "text", "rename_from"];

interface State {
  comment: boolean;
}

function tokenizer(keywords: string[], functions: string[]) {
  const isKeyword = new Set(keywords);
  const isFunction = new Set(functions);
  const isScalar = new Set(SCALARS);
  return (stream: StringStream, state: State): string | null => {
    if (state.comment) {
      if (stream.match(/.*?\*\//)) state.comment = false;
      else stream.skipToEnd();
      return "comment";
    }
    if (stream.eatSpace()) return null;
    if (stream.match("//")) {
      stream.skipToEnd();
      return "comment";
    }
    if (stream.match("/*")) {
      state.comment = !stream.match(/.*?\*\//);
      if (state.comment) stream.skipToEnd();
      return "comment";
    }
    if (stream.match(/"(\\.|[^"\\])*"?/)) return "string";
    if (stream.match(/\$[A-Za-z_]\w*/)) return "variableName";
    if (stream.match(/@[A-Za-z_]\w*/)) return "meta";
    if (stream.match(/\d+(\.\d+)?/)) return "number";
    const word = stream.match(/[A-Za-z_]\w*/) as RegExpMatchArray | null;
    if (word) {
      const text = word[0];
      if (isScalar.has(text)) return "typeName";
      if (isKeyword.has(text)) return "keyword";
      if (isFunction.has(text)) return "function";
      return /^[A-Z]/.test(text) ? "className" : "propertyName";
    }
    stream.next();
    return "operator";
  };
}

const language = (keywords: string[], functions: string[]) =>
  StreamLanguage.define<State>({
    startState: () => ({ comment: false }),
    token: tokenizer(keywords, functions),
    languageData: { commentTokens: { line: "//", block: { open: "/*", close: "*/" } }, closeBrackets: { brackets: ["(", "[", "{", '"'] } },
    tokenTable: { function: tags.function(tags.variableName) },
  });

export const gq = language(GQ_KEYWORDS, GQ_FUNCTIONS);
export const pg = language(PG_KEYWORDS, []);

export const highlighting = syntaxHighlighting(
  HighlightStyle.define([
    { tag: tags.keyword, class: "tok-keyword" },
    { tag: tags.string, class: "tok-string" },
    { tag: tags.number, class: "tok-number" },
    { tag: tags.comment, class: "tok-comment" },
    { tag: tags.variableName, class: "tok-variable" },
    { tag: tags.function(tags.variableName), class: "tok-function" },
    { tag: tags.className, class: "tok-type" },
    { tag: tags.typeName, class: "tok-scalar" },
    { tag: tags.meta, class: "tok-meta" },
  ]),
);

/** The types of the variables of the query around a position. */
export function variableTypes(text: string, types: Types): Map<string, string> {
  const found = new Map<string, string>();
  for (const [, name, type] of text.matchAll(/\$(\w+)\s*:\s*([A-Z]\w*)/g)) found.set(name, type);
  // An edge gives the types of the variables that have none.
  for (const [, left, right, binding, name] of edgesOf(text)) {
    const edge = types.edges.find((item) => item.name.toLowerCase() === name.toLowerCase());
    if (!edge) continue;
    if (binding) found.set(binding, edge.name);
    const flipped = found.get(left) === edge.target && edge.source !== edge.target;
    if (!found.has(left)) found.set(left, found.get(right) === edge.source ? edge.target : edge.source);
    if (!found.has(right)) found.set(right, flipped ? edge.source : edge.target);
  }
  return found;
}

/** The traversals of a text: [text, left, right, edge variable, edge name]. */
export function edgesOf(text: string): [string, string, string, string, string][] {
  const pattern = /\$(\w+)\s+(?:\$(\w+)\s*:\s*)?<?([a-z]\w*)>?\s*(?:\{[^}]*\})?\s*\$(\w+)/g;
  const found: [string, string, string, string, string][] = [];
  for (let match = pattern.exec(text); match; match = pattern.exec(text)) {
    if (!["contains", "starts_with", "in"].includes(match[3])) found.push([match[0], match[1], match[4], match[2] ?? "", match[3]]);
    // The far end can start the next traversal.
    pattern.lastIndex = match.index + match[0].lastIndexOf("$");
  }
  return found;
}

const edgeWord = (name: string): string => name[0].toLowerCase() + name.slice(1);

export function completeGq(types: () => Types | undefined) {
  return (context: CompletionContext): CompletionResult | null => {
    const catalog = types();
    if (!catalog) return null;
    const text = context.state.doc.toString();
    const before = text.slice(0, context.pos);
    const start = Math.max(before.lastIndexOf("query "), 0);
    const end = text.indexOf("\nquery ", context.pos);
    const query = text.slice(start, end < 0 ? undefined : end);
    const entities = [...catalog.nodes, ...catalog.edges];
    const variables = variableTypes(query, catalog);

    const property = context.matchBefore(/\$\w+\.\w*/);
    if (property) {
      const [name] = property.text.slice(1).split(".");
      const entity = entities.find((item) => item.name === variables.get(name));
      return {
        from: property.from + name.length + 2,
        options: (entity?.properties ?? []).map((item) => ({ label: item.name, type: "property", detail: item.type, info: item.description ?? undefined })),
      };
    }
    const bound = context.matchBefore(/(\$\w+\s*:\s*|\b(?:insert|update|delete)\s+)\w*/);
    if (bound) {
      const options = (bound.text.startsWith("$") ? catalog.nodes : entities).map((item) => ({
        label: item.name, type: "class", detail: item.key ? `key ${item.key.join(", ")}` : undefined, info: item.description ?? undefined,
      }));
      const inHeader = !query.slice(0, context.pos - start).includes("{");
      return {
        from: bound.to - (bound.text.match(/\w*$/)?.[0].length ?? 0),
        options: inHeader ? SCALARS.map((label) => ({ label, type: "type" })) : options,
      };
    }
    const traversal = context.matchBefore(/\$\w+\s+<?\w*/);
    if (traversal) {
      const name = traversal.text.match(/\$(\w+)/)![1];
      const type = variables.get(name);
      const edges = catalog.edges.filter((item) => !type || item.source === type || item.target === type);
      return {
        from: traversal.to - (traversal.text.match(/\w*$/)?.[0].length ?? 0),
        options: [
          ...edges.map((item) => ({ label: edgeWord(item.name), type: "method", detail: `${item.source} → ${item.target}` })),
          ...["as", "contains", "starts_with"].map((label) => ({ label, type: "keyword" })),
        ],
      };
    }
    const variable = context.matchBefore(/\$\w*/);
    if (variable)
      return {
        from: variable.from,
        options: [...new Set([...query.matchAll(/\$\w+/g)].map((item) => item[0]))]
          .filter((label) => label !== variable.text)
          .map((label) => ({ label, type: "variable", detail: variables.get(label.slice(1)) })),
      };
    const inline = before.match(/(?:\$\w+\s*:\s*|insert\s+|update\s+)([A-Z]\w*)\s*(?:set\s*)?\{[^{}]*$/);
    const word = context.matchBefore(/\w+/);
    if (!word && !context.explicit) return null;
    const inlineType = inline && entities.find((item) => item.name === inline[1]);
    const fields = inlineType ? inlineType.properties.map((item) => ({ label: item.name, type: "property", detail: item.type, boost: 2 })) : [];
    return {
      from: word ? word.from : context.pos,
      options: [
        ...fields,
        ...GQ_KEYWORDS.map((label) => ({ label, type: "keyword" })),
        ...GQ_FUNCTIONS.map((label) => ({ label, type: "function", apply: `${label}(` })),
      ],
    };
  };
}

export function completePg(context: CompletionContext): CompletionResult | null {
  const annotation = context.matchBefore(/@\w*/);
  if (annotation) return { from: annotation.from, options: ANNOTATIONS.map((name) => ({ label: `@${name}`, type: "keyword" })) };
  const word = context.matchBefore(/\w+/);
  if (!word && !context.explicit) return null;
  const declared = [...context.state.doc.toString().matchAll(/\b(?:node|interface)\s+([A-Z]\w*)/g)].map((item) => item[1]);
  return {
    from: word ? word.from : context.pos,
    options: [
      ...PG_KEYWORDS.map((label) => ({ label, type: "keyword" })),
      ...SCALARS.map((label) => ({ label, type: "type" })),
      ...[...new Set(declared)].map((label) => ({ label, type: "class" })),
    ],
  };
}
