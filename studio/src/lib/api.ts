// The client of the HTTP API. Every request of the Studio goes through it, with the token of this browser tab.
import { saveFile } from "./files";
import { branchOf, type Route } from "./route";
import type { Conflict, EntityChange } from "./types";

const TOKEN = "omnigraph-token";
// The Studio is at BASE/studio/.
const BASE = new URL("..", location.href.split("#")[0]).href;

export const readToken = (): string | null => sessionStorage.getItem(TOKEN);
export function storeToken(token: string | null): void {
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
}

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly body: { error?: string; hint?: string; merge_conflicts?: Conflict[]; [name: string]: unknown },
  ) {
    super(body.error ?? `The server answered with status ${status}.`);
  }
  get hint(): string | undefined {
    return body_hint(this.body.hint);
  }
}
const body_hint = (hint: unknown): string | undefined => (typeof hint === "string" ? hint : undefined);

export interface Query {
  [name: string]: string | number | boolean | string[] | null | undefined;
}

function addressOf(path: string, query: Query = {}): string {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    for (const item of Array.isArray(value) ? value : [value]) url.searchParams.append(name, String(item));
  }
  return url.href;
}

async function send(method: string, path: string, options: { query?: Query; body?: unknown; signal?: AbortSignal; accept?: string }) {
  const headers: Record<string, string> = { Accept: options.accept ?? "application/json" };
  const token = readToken();
  if (token) headers.Authorization = `Bearer ${token}`;
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(addressOf(path, options.query), {
      method,
      headers,
      body: options.body === undefined ? undefined : JSON.stringify(options.body, writeBigInt),
      signal: options.signal ?? null,
      credentials: "omit",
    });
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    throw new ApiError(0, { error: "The server does not respond.", hint: "Check that it is running, then try again." });
  }
  if (!response.ok) {
    const text = await response.text();
    let body: Record<string, unknown>;
    try {
      body = JSON.parse(text);
    } catch {
      body = { error: text.slice(0, 300) };
    }
    if (response.status === 401) dispatchEvent(new CustomEvent("studio-unauthorized", { detail: body.error }));
    throw new ApiError(response.status, body);
  }
  return response;
}

/** Parse JSON; integers that a double cannot hold become BigInt. */
export function parseExact(text: string): unknown {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  type Reviver = (key: string, value: unknown, context?: { source: string }) => unknown;
  const revive: Reviver = (_, value, context) =>
    typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) && context && /^-?\d+$/.test(context.source)
      ? BigInt(context.source)
      : value;
  return JSON.parse(text, revive as (key: string, value: unknown) => unknown);
}

const writeBigInt = (_: string, value: unknown): unknown => {
  if (typeof value !== "bigint") return value;
  const raw = (JSON as unknown as { rawJSON?: (text: string) => unknown }).rawJSON;
  return raw ? raw(value.toString()) : value.toString();
};
export const writeJson = (value: unknown, indent?: number): string => JSON.stringify(value, writeBigInt, indent);

export async function get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> {
  const response = await send("GET", path, { query, signal });
  return parseExact(await response.text()) as T;
}

export async function call<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const response = await send(method, path, { body, signal });
  return parseExact(await response.text()) as T;
}

export async function getText(path: string): Promise<string> {
  return (await send("GET", path, { accept: "*/*" })).text();
}

/** Save the body of a response as a file, and report how many bytes have arrived. Returns their number. */
export async function saveResponse(path: string, body: unknown, name: string, report: (bytes: number) => void, signal?: AbortSignal): Promise<number> {
  const response = await send("POST", path, { body, signal, accept: "*/*" });
  const parts: BlobPart[] = [];
  let bytes = 0;
  const reader = response.body!.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    parts.push(part.value);
    bytes += part.value.length;
    report(bytes);
  }
  saveFile(name, new Blob(parts));
  return bytes;
}

/** Read at most `limit` changes of a stream; `complete` is false if there are more. */
export async function readChanges(path: string, query: Query, limit: number, signal?: AbortSignal) {
  const response = await send("GET", path, { query, signal });
  const changes: EntityChange[] = [];
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    const lines = (rest + (value ?? "")).split("\n");
    rest = done ? "" : (lines.pop() ?? "");
    for (const line of lines) {
      if (!line) continue;
      if (changes.length === limit) {
        await reader.cancel();
        return { changes, complete: false };
      }
      changes.push(parseExact(line) as EntityChange);
    }
    if (done) return { changes, complete: true };
  }
}

export const graphPath = (graph: string, rest = ""): string => `graphs/${encodeURIComponent(graph)}${rest}`;

/** The state that a view reads, as members of a request: the head of a branch, a commit, or a branch at a time. */
export function placeOf(route: Route): { branch?: string; snapshot?: string; at?: string } {
  const at = route.params.at;
  if (!at) return { branch: branchOf(route) };
  return /^[0-9A-Za-z]+$/.test(at) ? { snapshot: at } : { branch: branchOf(route), at };
}
