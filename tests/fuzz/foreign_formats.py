"""The formats that others write: encoders' files, archives, downloads, corpora, data sets, replies of servers."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pickle
import shutil
import tarfile
import urllib.request
import zipfile
from collections.abc import Callable
from email.message import Message
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from ensembed.corpora import open_corpus
from ensembed.corpora.corpus import FileFormat
from ensembed.corpora.record_files import RecordCorpus, RecordFile
from ensembed.encoders import open_encoder
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import PullError
from ensembed.fetch.archives import ArchiveError, extract, read_members
from ensembed.fetch.catalog import read_catalog
from ensembed.fetch.download import _address, download
from ensembed.sts.datasets import load_sts, read_pairs
from fuzz.mutations import Files, Kind
from fuzz.workers import Format

TEXTS = ["A man is playing guitar.", "Two dogs run the snow, so?", "", "12 cats é 😀", "a " * 300]


def _encode(name: str, folder: Path) -> object:
    encoder = open_encoder(name.format(folder=folder), threads=1)
    return encoder.encode(TEXTS).tobytes(), encoder.spec.dim


# --- Tables of token vectors ------------------------------------------------------------------------------------------


def _make_static(folder: Path) -> None:
    from make_static import make_static

    make_static(folder)
    (folder / "vectors.safetensors").rename(folder / "model.safetensors")


def _make_tokenizer(kind: str, folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    texts = [*TEXTS, "some more text to learn from", "dogs and cats and guitars"] * 3
    special = ["<s>", "</s>", "<unk>"]
    if kind == "bpe":
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))  # noqa: S106 - a token of no secret
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace("so", "SO")])
        trainer: Any = trainers.BpeTrainer(vocab_size=320, special_tokens=special, show_progress=False)
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=special, unk_token="<unk>", show_progress=False)  # noqa: S106 - as above
    tokenizer.train_from_iterator(texts, trainer)
    ids = [(token, tokenizer.token_to_id(token)) for token in special[:2]]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair=None, special_tokens=ids)
    tokenizer.save(str(folder / "tokenizer.json"))
    rows = tokenizer.get_vocab_size()
    save_file(
        {"vectors": np.random.default_rng(0).standard_normal((rows, 4), np.float32)}, folder / "model.safetensors"
    )


def _make_model2vec(folder: Path) -> None:
    from make_static import VOCABULARY, small_tokenizer, small_vectors

    small_tokenizer().save(str(folder / "tokenizer.json"))
    count = len(VOCABULARY)
    tensors: dict[str, Any] = {"embeddings": small_vectors(1).astype(np.float16), "weights": np.linspace(0.1, 1, count)}
    save_file({**tensors, "mapping": np.arange(count)[::-1].copy()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"normalize": True, "max_length": 40, "hidden_dim": 8}))


# --- Transformers -----------------------------------------------------------------------------------------------------


def _make_onnx(folder: Path) -> None:
    from make_onnx import write_json, write_onnx

    write_onnx(folder)
    modules = [("0", "", "Transformer"), ("1", "1_Pooling", "Pooling"), ("2", "2_Normalize", "Normalize")]
    names = [
        {"idx": int(i), "name": i, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, path, kind in modules
    ]
    write_json(folder / "modules.json", names)
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": True})
    write_json(folder / "tokenizer_config.json", {"model_max_length": 128})
    write_json(folder / "config.json", {"max_position_embeddings": 130, "model_type": "roberta", "pad_token_id": 1})
    prompts = {"prompts": {"query": "query: ", "other": "x"}, "default_prompt_name": "query"}
    write_json(folder / "config_sentence_transformers.json", prompts)


def _make_external(folder: Path) -> None:
    """A graph with its weights in another file."""
    import onnx
    from make_onnx import small_graph
    from make_static import small_tokenizer

    small_tokenizer().save(str(folder / "tokenizer.json"))
    how: dict[str, Any] = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 64}
    onnx.save_model(small_graph(), str(folder / "model.onnx"), **how)


def _make_use_lite(folder: Path) -> None:
    from make_use_lite import make_use_lite

    make_use_lite(folder)


def _make_st(folder: Path) -> None:
    from make_st import HIDDEN, write_json, write_modules, write_st

    model = write_st(folder / "model")
    dense = {"in_features": HIDDEN, "out_features": 4, "bias": False, "activation_function": "torch.nn.Tanh"}
    write_json(model / "2_Dense" / "config.json", dense)
    weight = np.random.default_rng(0).standard_normal((4, HIDDEN), np.float32)
    save_file({"linear.weight": weight}, model / "2_Dense" / "model.safetensors")
    write_modules(model, ["", "1_Pooling", "2_Dense"])


def _read_saved_model(folder: Path) -> object:
    """Check a SavedModel, as it is done before any of it runs."""
    from ensembed.encoders.tfhub.saved_model_checks import check_graph

    return check_graph(folder / "saved_model.pb", f"tfhub:{folder}")


def _make_saved_model(folder: Path) -> None:
    from make_tfhub import make_tf2

    made = make_tf2(folder / "tf2")
    (made / "saved_model.pb").rename(folder / "saved_model.pb")
    shutil.rmtree(made)


# --- Word vectors -----------------------------------------------------------------------------------------------------


def _make_words(form: str, folder: Path) -> None:
    from make_words import all_formats, small_vectors

    (folder / "words").write_bytes(all_formats(small_vectors(70, 3))[form][1])
    (folder / "words").rename(folder / _WORD_FILES[form])


_WORD_FILES = {
    "glove": "words.txt",
    "word2vec": "words.txt",
    "word2vec-bin": "words.bin",
    "wink": "words.json",
    "glove, gzipped": "words.txt.gz",
    "wink, gzipped": "words.json.gz",
    "word2vec-bin, gzipped": "words.gz",
}


def _make_paranmt(folder: Path) -> None:
    from make_paranmt import make_paranmt

    make_paranmt(folder)


def _make_paranmt_zip(folder: Path) -> None:
    from make_paranmt import make_paranmt_zip

    make_paranmt_zip(folder / "model.zip")


def _make_paranmt_converted(folder: Path) -> None:
    from make_paranmt import model_data

    (folder / "x.pickle").write_bytes(pickle.dumps(model_data((3, 3)), 2))
    open_encoder(f"paranmt:{folder}/x.pickle")
    (folder / "x.pickle").unlink()
    (converted,) = (folder.parent / "cache" / "paranmt").glob("*.safetensors")
    converted.rename(folder / "model.safetensors")


# --- Archives and downloads -------------------------------------------------------------------------------------------

_MEMBERS = {"model/a.txt": b"some text\n" * 20, "model/sub/b.bin": bytes(range(256)) * 3, "model/empty": b""}


def _make_tar(folder: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in _MEMBERS.items():
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = len(content), {"comment": "é"} if "sub" in name else {}
            archive.addfile(info, io.BytesIO(content))
    (folder / "model.tar.gz").write_bytes(gzip.compress(buffer.getvalue(), mtime=0))


def _make_zip(folder: Path) -> None:
    with zipfile.ZipFile(folder / "model.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _MEMBERS.items():
            archive.writestr(zipfile.ZipInfo(name), content)


def _read_archive(name: str, folder: Path) -> object:
    """Do what fetching does: unpack an archive, and read members of it."""
    target, taken = folder.parent / "tmp" / "unpacked", dict[str, bytes]()
    target.mkdir(exist_ok=True)
    try:
        read_members(folder / name, ["model/a.txt"], lambda member, stream: taken.update({member: stream.read()}))
        extract(folder / name, target, most=50_000_000)
    except ArchiveError as error:
        raise PullError(f"{folder / name}: {error}") from error
    except OSError as error:  # the callers name the archive
        raise PullError(f"{folder / name} cannot be read: {error}") from error
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}, taken


_URL, _BODY = "http://127.0.0.1:9/file.bin", bytes(range(256)) * 40


class _Answer:
    """A reply of a web server."""

    def __init__(self, head: dict[str, Any], body: bytes) -> None:
        self.status = head.get("status")
        self.headers = Message()
        headers = head.get("headers")
        for name, value in headers.items() if isinstance(headers, dict) else ():
            self.headers[name] = str(value).encode("ascii", "replace").decode().replace("\n", " ").replace("\r", " ")
        self._stream = io.BytesIO(body)
        self.read1 = self._stream.read1

    def __enter__(self) -> _Answer:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _make_download(folder: Path) -> None:
    half = _BODY[:5000]
    (folder / "file.bin.part").write_bytes(half)
    facts = {"tag": "tag", "size": 5000, "sha256": hashlib.sha256(half).hexdigest()}
    (folder / "file.bin.part.json").write_text(json.dumps(facts))
    seen = {"url": _URL, "size": len(_BODY), "sha256": hashlib.sha256(_BODY).hexdigest()}
    (folder / ".source.json").write_text(json.dumps(seen))
    size = len(_BODY)
    headers = {"Content-Length": str(size - 5000), "Content-Range": f"bytes 5000-{size - 1}/{size}", "ETag": "tag"}
    (folder / "head.json").write_text(json.dumps({"status": 206, "headers": headers}))


def _repair_download(files: Files) -> None:
    part, facts = files["file.bin.part"], json.loads(bytes(files["file.bin.part.json"]))  # type: ignore[arg-type]
    if isinstance(part, bytes):
        facts |= {"size": len(part), "sha256": hashlib.sha256(part).hexdigest()}
        files["file.bin.part.json"] = json.dumps(facts).encode()


def _download(folder: Path) -> object:
    """Resume a download whose parts are the files of the artefact; the reply's head is one of them."""
    path = _address(_URL)[1]
    path.parent.mkdir(parents=True, exist_ok=True)
    for name in ("file.bin.part", "file.bin.part.json", ".source.json"):
        if os.path.lexists(folder / name):
            (folder / name).rename(path.parent / name)
    try:
        head = json.loads((folder / "head.json").read_bytes()) if (folder / "head.json").is_file() else {}
    except (ValueError, RecursionError):
        head = {}
    head = head if isinstance(head, dict) else {}

    class Opener:
        def open(self, request: urllib.request.Request, timeout: float) -> _Answer:  # noqa: ARG002 - as it is called
            asked = request.get_header("Range")
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
            if start > len(_BODY):
                raise urllib.error.HTTPError(_URL, 416, "no", Message(), io.BytesIO())
            if not start:
                return _Answer({"status": 200, "headers": {"Content-Length": str(len(_BODY))}}, _BODY)
            return _Answer(head, _BODY[start:])

    before = urllib.request.build_opener
    urllib.request.build_opener = lambda *_: Opener()  # type: ignore[assignment]
    try:
        return download(_URL).read_bytes()
    finally:
        urllib.request.build_opener = before


# --- Corpora and data sets --------------------------------------------------------------------------------------------

_LINES = ["A first sentence.", "", "Eine zweite Zeile, é.", "A first sentence.", "third \u2028 line", "12 cats"]


def _make_text(names: str, folder: Path) -> None:
    data = "\ufeff" + "".join(f"{line}\r\n" for line in _LINES)
    for name in names.split():
        (folder / name).write_bytes(gzip.compress(data.encode(), mtime=0) if name.endswith(".gz") else data.encode())


def _make_records(name: str, folder: Path) -> None:
    rows = [{"id": f"r{i}", "text": line, "n": str(i)} for i, line in enumerate(_LINES)]
    if "jsonl" in name:
        data = "".join(json.dumps(row) + "\n" for row in rows)
    else:
        mark = "\t" if ".tsv" in name else ","
        cells = [["id", "text", "n"], *([row["id"], f'"{row["text"]}"', row["n"]] for row in rows)]
        data = "".join(mark.join(row) + "\n" for row in cells)
    (folder / name).write_bytes(gzip.compress(data.encode(), mtime=0) if name.endswith(".gz") else data.encode())


def _make_parquet(folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    ways: list[dict[str, Any]] = [{"compression": "snappy"}, {"compression": "none", "use_dictionary": False}]
    for i, how in enumerate(ways):
        table = pa.table({"text": [*_LINES, None], "n": list(range(len(_LINES) + 1))})
        parquet.write_table(table, folder / f"part{i}.parquet", row_group_size=3, **how)


def _read_corpus(name: str, folder: Path) -> object:
    corpus = open_corpus(folder / name if name else folder)
    return list(corpus), corpus.key, len(corpus), list(corpus.stretch(1, 3))


def _read_records(name: str, form: FileFormat, folder: Path) -> object:
    corpus = RecordCorpus(RecordFile(folder / name, str(folder / name), form, id_column="id"))
    rows = [(record.text, record.id, record.metadata) for record in corpus.records()]
    return rows, corpus.key, corpus.file.header(), corpus.file.key()


def _make_sts(folder: Path) -> None:
    from ensembed.sts.datasets import PARTS

    place = folder / "senteval" / "downstream" / "STS"
    (place / "STS13-en-test").mkdir(parents=True)
    for part in PARTS["sts13"]:
        (place / "STS13-en-test" / f"STS.input.{part}.txt").write_text("A dog.\tA cat.\nOne.\tTwo.\n")
        (place / "STS13-en-test" / f"STS.gs.{part}.txt").write_text("2.5\n\n")
    (place / "STSBenchmark").mkdir()
    row = "main-news\tMSRpar\t2012\t0001\t2.5\tA dog.\tA cat.\n"
    (place / "STSBenchmark" / "sts-dev.csv").write_text(row * 2)
    (folder / "own.tsv").write_text("score\tsentence1\tsentence2\n1.5\tA dog.\tA cat.\n2\tOne.\tTwo.\n")


def _read_sts(folder: Path) -> object:
    sets = [load_sts("sts13", folder), load_sts("stsb-dev", folder)]
    parts = [part for some in sets for part in some.parts] + [read_pairs(folder / "own.tsv")]
    return [(part.name, part.sentences1, part.sentences2, part.scores.tolist()) for part in parts], sets[0].missing


# --- Servers ----------------------------------------------------------------------------------------------------------


def _make_reply(folder: Path) -> None:
    from ensembed.encoders.openai.openai_encoder import SERVER_PROBES

    vectors = DemoEncoder(6).encode(list(SERVER_PROBES))
    rows = [{"object": "embedding", "index": i, "embedding": row.tolist()} for i, row in enumerate(vectors)]
    (folder / "reply.json").write_text(json.dumps({"object": "list", "data": rows, "model": "m"}))
    (folder / "head.json").write_text(json.dumps({"status": 200, "headers": {"retry-after": "1", "location": "x"}}))


def _read_reply(folder: Path) -> object:
    """Open an encoder behind a server whose reply is a file."""
    import httpx

    from ensembed.encoders.openai.api_client import EmbeddingAPI
    from ensembed.encoders.openai.api_servers import find_server
    from ensembed.encoders.openai.openai_encoder import OpenAIEncoder

    def answer(_: httpx.Request) -> httpx.Response:
        try:
            head = json.loads((folder / "head.json").read_bytes()) if (folder / "head.json").is_file() else {}
            status = head["status"] if head["status"] in range(200, 600) else 200
            headers = {
                str(k).encode("ascii", "replace"): str(v).encode("ascii", "replace") for k, v in head["headers"].items()
            }
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            status, headers = 200, {}
        body = (folder / "reply.json").read_bytes() if (folder / "reply.json").is_file() else b""
        # What makes the transport itself fail is no reply.
        kept = {k: v for k, v in headers.items() if k.lower() in (b"retry-after", b"location", b"content-type")}
        return httpx.Response(status, headers=kept, content=body)

    server = find_server("http://127.0.0.1:9/v1", "api")
    api = EmbeddingAPI(server, "m", name="api", pause=lambda *_: None)
    api._client = httpx.Client(transport=httpx.MockTransport(answer))
    encoder = OpenAIEncoder(api, name="api")
    return encoder.spec, encoder.encode(["a", "b", "c"]).tobytes()


def _make_seen(folder: Path) -> None:
    os.environ["ENSEMBED_CACHE"] = str(folder)
    _read_seen(folder)
    (seen,) = (folder / "servers").glob("*.json")
    seen.rename(folder / "seen.json")


def _read_seen(folder: Path) -> object:
    """Find the revision of a server, where the file of the artefact says what was seen before."""
    from ensembed.encoders.openai.openai_encoder import SERVER_PROBES, probed_revision

    os.environ["ENSEMBED_CACHE"] = str(folder)
    name = hashlib.sha256(json.dumps(["m", None]).encode()).hexdigest()[:32]
    (folder / "servers").mkdir(exist_ok=True)
    if os.path.lexists(folder / "seen.json"):
        (folder / "seen.json").rename(folder / "servers" / f"{name}.json")
    return probed_revision("m", None, DemoEncoder(6).encode(list(SERVER_PROBES)))


def _make_keys(folder: Path) -> None:
    (folder / "keys.txt").write_text("# keys\nabcdefghijklmnop-1234567890\nzyxwvutsrqponml-0987654321\n")


def _read_keys(folder: Path) -> object:
    from ensembed.serve.access import read_keys

    return read_keys(folder / "keys.txt")


def _make_catalogue(folder: Path) -> None:
    from importlib import resources

    text = (resources.files("ensembed") / "fetch" / "catalog.json").read_text("utf-8")
    (folder / "catalog.json").write_text(json.dumps(json.loads(text)[:3] + json.loads(text)[-2:]))


def _read_catalogue(folder: Path) -> object:
    path = folder / "catalog.json"
    return read_catalog(path.read_text("utf-8", "replace") if path.is_file() else "")


def _words(form: str) -> Format:
    make: Callable[[Path], None] = partial(_make_words, form)
    return Format(make, partial(_encode, "words:{folder}/" + _WORD_FILES[form]))


_TOKENS = ("tokenizers", "safetensors")
_ST = ("sentence_transformers", "transformers.models.bert.modeling_bert")
_TENSORFLOW = ("tensorflow.core.protobuf.saved_model_pb2", "tensorflow.python.framework.op_def_registry")
_ONNX = ("onnxruntime", "tokenizers")

FORMATS: dict[str, Format] = {
    "static": Format(_make_static, partial(_encode, "static:{folder}"), modules=_TOKENS),
    "tokenizer-bpe": Format(partial(_make_tokenizer, "bpe"), partial(_encode, "static:{folder}"), modules=_TOKENS),
    "tokenizer-unigram": Format(
        partial(_make_tokenizer, "unigram"), partial(_encode, "static:{folder}"), modules=_TOKENS
    ),
    "model2vec": Format(_make_model2vec, partial(_encode, "model2vec:{folder}"), modules=_TOKENS),
    "onnx": Format(_make_onnx, partial(_encode, "onnx:{folder}"), modules=_ONNX),
    "onnx-external": Format(_make_external, partial(_encode, "onnx:{folder}?max_length=64"), modules=_ONNX),
    "st": Format(_make_st, partial(_encode, "st:{folder}/model?device=cpu"), modules=_ST, slow=True),
    "tfhub": Format(_make_saved_model, _read_saved_model, modules=_TENSORFLOW, slow=True),
    "use-lite": Format(_make_use_lite, partial(_encode, "use-lite:{folder}?max_length=16")),
    "words-glove": _words("glove"),
    "words-word2vec": _words("word2vec"),
    "words-binary": _words("word2vec-bin"),
    "words-wink": _words("wink"),
    "words-glove-gz": _words("glove, gzipped"),
    "words-wink-gz": _words("wink, gzipped"),
    "words-binary-gz": _words("word2vec-bin, gzipped"),
    "paranmt": Format(_make_paranmt, partial(_encode, "paranmt:{folder}/ngram-word.pickle")),
    "paranmt-zip": Format(_make_paranmt_zip, partial(_encode, "paranmt:{folder}/model.zip")),
    "paranmt-converted": Format(_make_paranmt_converted, partial(_encode, "paranmt:{folder}/model.safetensors")),
    "archive-tar": Format(_make_tar, partial(_read_archive, "model.tar.gz")),
    "archive-zip": Format(_make_zip, partial(_read_archive, "model.zip")),
    "download": Format(_make_download, _download, _repair_download, names=(_URL,)),
    "corpus-text": Format(partial(_make_text, "c.txt"), partial(_read_corpus, "c.txt")),
    "corpus-gzip": Format(partial(_make_text, "c.txt.gz"), partial(_read_corpus, "c.txt.gz")),
    "corpus-folder": Format(partial(_make_text, "a.txt b.txt.gz"), partial(_read_corpus, "")),
    "corpus-parquet": Format(_make_parquet, partial(_read_corpus, ""), modules=("pyarrow.parquet",)),
    "records-csv": Format(partial(_make_records, "r.csv"), partial(_read_records, "r.csv", "csv")),
    "records-tsv": Format(partial(_make_records, "r.tsv"), partial(_read_records, "r.tsv", "tsv")),
    "records-jsonl": Format(partial(_make_records, "r.jsonl"), partial(_read_records, "r.jsonl", "jsonl")),
    "records-jsonl-gz": Format(
        partial(_make_records, "r.jsonl.gz"),
        partial(_read_records, "r.jsonl.gz", "jsonl"),
        parts={"r.jsonl.gz|gzip|line:1": ("json",)},
    ),
    # A user may name a pipe, which waits for its writer.
    "sts": Format(_make_sts, _read_sts, kinds=(Kind.MISSING, Kind.FOLDER, Kind.LOOP, Kind.ZEROS)),
    "api-reply": Format(_make_reply, _read_reply, names=("http://127.0.0.1:9/v1",), modules=("httpx",)),
    "api-seen": Format(_make_seen, _read_seen),
    "keys": Format(
        _make_keys, _read_keys, names=("keys.txt", "key "), kinds=(Kind.MISSING, Kind.FOLDER, Kind.LOOP, Kind.ZEROS)
    ),
    "catalogue": Format(_make_catalogue, _read_catalogue, names=("catalogue",)),
}
