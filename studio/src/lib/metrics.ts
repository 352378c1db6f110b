// The metrics of the server, in the text format of Prometheus.
export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

export function parseMetrics(text: string): Sample[] {
  const samples: Sample[] = [];
  for (const line of text.split("\n")) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!found) continue;
    const labels: Record<string, string> = {};
    for (const [, name, value] of (found[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
    samples.push({ name: found[1], labels, value: Number(found[3].replace("Inf", "Infinity")) });
  }
  return samples;
}

/** The sum of the samples of a name that have all of some labels. */
export const sumOf = (samples: Sample[], name: string, labels: Record<string, string> = {}): number =>
  samples
    .filter((item) => item.name === name && Object.entries(labels).every(([key, value]) => item.labels[key] === value))
    .reduce((sum, item) => sum + item.value, 0);
