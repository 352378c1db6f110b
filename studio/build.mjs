// Bundles the Studio. `node build.mjs [FOLDER]` writes to the assets of the Python package, or to FOLDER.
import { build } from "esbuild";
import { copyFile, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
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
