// Makes use_lite.json: the golden token ids and vectors of `use-lite`, from the TF.js original.
//
// Run it again, outside the repository, with Node 18 or later:
//
//     mkdir elsewhere && cd elsewhere
//     npm install @energetic-ai/core@0.2.0 @energetic-ai/embeddings@0.2.0
//     cp .../tests/encoders/golden/use_lite.mjs .
//     node use_lite.mjs FOLDER > .../tests/encoders/golden/use_lite.json
//
// FOLDER holds model.json, vocab.json and the seven shards, as `ensembed pull use-lite` leaves them.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";

const require = createRequire(import.meta.url);
const core = require("@energetic-ai/core");
const { initModel } = require("@energetic-ai/embeddings");
const version = (name) => require(`${name}/package.json`).version;

const sentences = [
  // The empty string and white space.
  "",
  " ",
  "   ",
  "\t",
  "\n\r\n",
  "\u00a0\u2003",
  // One character.
  "a",
  ".",
  "7",
  "中",
  "🙂",
  "\u0000",
  // Plain sentences.
  "A man is playing a guitar.",
  "The cat sat on the mat",
  "How old are you?",
  "The quick brown fox jumps over the lazy dog.",
  "Antidisestablishmentarianism is a word that nobody uses.",
  "THE MARKETS FELL SHARPLY ON MONDAY",
  "iPhone e-mail co-operate don't shouldn't've",
  // Punctuation and digits; pieces with ':' have no score and ':30' has a score of +30.
  "Wait... what?! (Really) -- \"yes\"; 'no' / [maybe] {so}",
  "The meeting is at 10:30, not at 3:30 or 11:15.",
  ":30",
  ": :) :( :-) :// ): ::::",
  "https://example.com/a/b?c=d&e=f#g",
  "3.14159 26535 8979 1,000,000 50% $9.99 1/2",
  // Runs of one character, where several segmentations have the same score.
  "aaaaaaaaaaaaaaa!!!!!!!!!.........-----------------------",
  "hahahahahahaha sooooooo good mmmmmmm",
  // White space inside.
  "two  spaces   three    four",
  " leading and trailing ",
  "tabs\tand\nnew lines\r\nhere",
  // Accents, composed and decomposed; what NFKC changes.
  "Café naïve façade Zürich São Paulo smörgåsbord",
  "Cafe\u0301 nai\u0308ve fac\u0327ade",
  "ﬁne ﬂoor ① ² ½ ™ Ａｂｃ１２３ ﷺ Ⅳ ㎏",
  "“curly” ‘quotes’ – en — em … ellipsis",
  // Other scripts, emoji, unknown characters in runs and between known ones.
  "Привет, мир",
  "Γειά σου Κόσμε αθιμπ",
  "这是一个测试。它很好，对吗？",
  "日本語のテキストです",
  "السلام عليكم",
  "नमस्ते दुनिया",
  "한국어 문장",
  "👩‍👩‍👧‍👦 family 🇩🇪 flag 👍🏽",
  "a中b中中c 中 中 d",
  "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠜎𠜱",
  "constructor __proto__ toString � <s> </s> extra_token_id_1 ▁",
  // More than 128 pieces, plain, and with a run of unknown characters before the cut.
  "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness. ".repeat(8),
  "中".repeat(300) + " then, after a long run of unknown characters, " + "xyzzy plugh ".repeat(60),
];

const folder = process.argv[2];
const model = await initModel(async () => ({
  model: await core.loadGraphModel(`file://${path.resolve(folder)}/model.json`),
  vocabulary: JSON.parse(await readFile(path.join(folder, "vocab.json"), "utf-8")),
}));

const cases = [];
for (const sentence of sentences) {
  // The second sentence gives the batch a row for the empty string, which has no pieces and fails on its own.
  const [vector] = await model.embed([sentence, "."]);
  const bytes = Buffer.alloc(4 * vector.length);
  vector.forEach((x, i) => bytes.writeFloatLE(x, 4 * i));
  cases.push({ sentence, ids: model.tokenizer.encode(sentence), vector: bytes.toString("base64") });
}
const made = {
  "@energetic-ai/core": version("@energetic-ai/core"),
  "@energetic-ai/embeddings": version("@energetic-ai/embeddings"),
  node: process.versions.node,
  unicode: process.versions.unicode,
};
const facts = {
  about: "Token ids (uncut) and vectors (base64 of 512 little-endian float32) by the TF.js original; see use_lite.mjs.",
  made,
};
const lines = cases.map((c) => "    " + JSON.stringify(c)).join(",\n");
console.log(JSON.stringify(facts, null, 2).slice(0, -2) + ',\n  "cases": [\n' + lines + "\n  ]\n}");
