// The responses of the HTTP API that the Studio reads.
export type Value = string | number | bigint | boolean | null | Value[] | { [name: string]: Value };
export type Row = Record<string, Value>;

export interface Property {
  name: string;
  type: string;
  kind: string;
  nullable: boolean;
  enum_values: string[] | null;
  description: string | null;
  embedded_from: string | null;
  full_text: boolean;
}
export interface TypeInfo {
  name: string;
  description: string | null;
  properties: Property[];
  key: string[] | null;
  uniques: string[][];
  indexes: string[][];
  ranges: { property: string; min: number | null; max: number | null }[];
  checks: { property: string; pattern: string }[];
}
export interface NodeInfo extends TypeInfo {
  implements: string[];
}
export interface EdgeInfo extends TypeInfo {
  source: string;
  target: string;
  cardinality: { min: number; max: number | null };
}
export interface Types {
  interfaces: TypeInfo[];
  nodes: NodeInfo[];
  edges: EdgeInfo[];
}

export interface Param {
  name: string;
  kind: string;
  item_kind?: string;
  vector_dim?: number;
  nullable: boolean;
}
export interface LintedQuery {
  name: string;
  mutation: boolean;
  description: string | null;
  params: Param[];
  operation: { result: { name: string; kind: string }[]; reads: { kind: string; type_name: string }[] };
}
export interface Diagnostic {
  severity: "error" | "warning" | "info";
  code: string | null;
  message: string;
  line: number | null;
  start: number | null;
  end: number | null;
  hint: string | null;
}
export interface Lint {
  ok: boolean;
  diagnostics: Diagnostic[];
  queries: LintedQuery[];
}
export interface StoredQuery {
  name: string;
  description?: string;
  instruction?: string;
  mutation: boolean;
  params: Param[];
}
export interface ReadResult {
  query_name: string;
  row_count: number;
  columns?: string[];
  rows: Row[];
  graph_commit_id?: string;
}
export interface Commit {
  graph_commit_id: string;
  graph_branch: string | null;
  graph_manifest_version: number;
  parent_commit_id: string | null;
  merged_parent_commit_id: string | null;
  actor_id: string | null;
  created_at: number;
  message?: string | null;
}
export interface ChangeResult {
  branch: string;
  affected_nodes: number;
  affected_edges: number;
  commit: Commit | null;
}
export interface Dataset {
  entity_kind: "node" | "edge";
  type_name: string;
  entity_count: number;
  published_dataset_version: number;
}
export interface Snapshot {
  graph_branch: string;
  graph_manifest_version: number;
  datasets: Dataset[];
}
export interface IndexInfo {
  type: string;
  property: string;
  kind: string;
  rows: number;
  covered: number;
}
export interface Image {
  endpoints?: { from: string; to: string };
  properties: Record<string, Value>;
}
export interface EntityChange {
  kind: "node" | "edge";
  type: { id: string; name: string };
  id: string;
  op: "insert" | "update" | "delete";
  before?: Image;
  after?: Image;
}
export type Stats = Record<string, Partial<Record<EntityChange["op"], number>>>;
export interface Conflict {
  id: string;
  entity_kind: string;
  type_name: string;
  entity_id: string | null;
  kind: string;
  property?: string | null;
  message: string;
  base: Value;
  ours: Value;
  theirs: Value;
}
/** The result of a merge or, without `source` and `target`, of a revert. A dry run has the conflicts. */
export interface MergeResult {
  source: string;
  target: string;
  outcome: "already_up_to_date" | "fast_forward" | "merged";
  branch_deleted?: boolean;
  branch_delete_error?: string;
  conflicts?: Conflict[];
  commit?: Commit | null;
}
export interface Permissions {
  actor_id: string | null;
  actions: Record<string, boolean>;
}
export interface Tag {
  name: string;
  graph_commit_id: string;
  message?: string | null;
}
export interface Neighbors {
  type: string;
  id: string;
  neighbors: {
    edge: { type: string; id: string; direction: "out" | "in"; from: string; to: string; properties: Row };
    node: { type: string; id: string; properties: Row };
  }[];
  counts: { edge: string; direction: "out" | "in"; count: number }[];
}
export interface RunningQuery {
  id: string;
  actor_id: string | null;
  operation: string;
  state: string;
  query: string | null;
  seconds: number;
  memory_bytes: number;
  cancellable: boolean;
}
