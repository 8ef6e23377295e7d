// Encodes sentences with the TF.js original of `use-lite` and times it.
//
//     node use_lite.mjs FOLDER SENTENCES.json BACKEND BATCH_SIZE REPEATS VECTORS.f32
//
// Runs beside a node_modules that has the packages of benchmarks/use_lite.py. Prints the best time in seconds.
import { readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const require = createRequire(path.join(process.cwd(), "index.js"));
const tf = require("@tensorflow/tfjs");
const wasm = require("@tensorflow/tfjs-backend-wasm");
const use = require("@tensorflow-models/universal-sentence-encoder");

const [folder, file, backend, size, repeats, out] = process.argv.slice(2);
wasm.setThreadsCount(1);
await tf.setBackend(backend);
// The package loads its files from URLs, and Node's fetch has none of file:.
tf.env().platform.fetch = async (url) => new Response(await readFile(fileURLToPath(url)));
const base = pathToFileURL(path.resolve(folder)).href;
const model = await use.load({ modelUrl: `${base}/model.json`, vocabUrl: `${base}/vocab.json` });
const sentences = JSON.parse(await readFile(file, "utf-8"));

async function encode(texts) {
  const parts = [];
  for (let start = 0; start < texts.length; start += Number(size)) {
    const vectors = await model.embed(texts.slice(start, start + Number(size)));
    parts.push(await vectors.data());
    vectors.dispose();
  }
  return parts;
}

await encode(sentences.slice(0, 8)); // the compiler's warm-up
let best = Infinity;
let parts;
for (let i = 0; i < Number(repeats); i++) {
  const start = performance.now();
  parts = await encode(sentences);
  best = Math.min(best, (performance.now() - start) / 1000);
}
await writeFile(out, Buffer.concat(parts.map((p) => Buffer.from(p.buffer, p.byteOffset, p.byteLength))));
console.log(JSON.stringify({ seconds: best, backend: tf.getBackend() }));
