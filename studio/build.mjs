// Bundles the Studio. `node build.mjs [FOLDER]` writes to the assets of the Python package, or to FOLDER.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { copyFile, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "..", "src", "omnigraph", "studio", "assets");

await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });
const { metafile } = await build({
  entryPoints: [join(here, "src", "studio.tsx"), join(here, "src", "studio.css")],
  outdir: out,
  // Paths in the output do not depend on where the checkout is.
  absWorkingDir: here,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  metafile: true,
  logLevel: "warning",
});
for (const name of ["index.html", "icon.svg"]) await copyFile(join(here, "src", name), join(out, name));

// A test compares this digest with the sources, without Node: built files that are older than their sources are an error.
const sources = (await readdir(join(here, "src"), { recursive: true, withFileTypes: true }))
  .filter((item) => item.isFile())
  .map((item) => relative(here, join(item.parentPath, item.name)).replaceAll("\\", "/"));
const digest = createHash("sha256");
for (const name of [...sources, "build.mjs", "package-lock.json"].sort()) digest.update(`${name}\0`).update(await readFile(join(here, name)));
await writeFile(join(out, "sources.sha256"), `${digest.digest("hex")}\n`);

// The licenses of the bundled packages require that their text comes with them.
const packages = new Set(Object.keys(metafile.inputs).flatMap((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1] ?? []));
const notices = [];
for (const name of [...packages].sort()) {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  const file = (await readdir(folder)).find((item) => /^licen[cs]e/i.test(item));
  notices.push(`${name} ${version} (${license})\n\n${file ? (await readFile(join(folder, file), "utf8")).trim() : ""}\n`);
}
await writeFile(join(out, "licenses.txt"), notices.join(`\n${"-".repeat(80)}\n\n`));
