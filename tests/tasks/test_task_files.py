"""Tasks are read from every layout, and a wrong file gets an error that names the line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from ensembed.errors import AbsentDatasetError, DatasetError
from ensembed.tasks import Classification, Clustering, GradedPairs, PairClassification, Ranking, Reranking, find_tasks


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


DOCS = "d1\tA dog barks.\nd2\tA cat sleeps.\nd3\t \n"
QUERIES = "q1\tdogs\nq2\tcats\nq3\tcows\n"
QRELS = "q1\td1\t1\nq2\td2\t2\nq2\td1\t0\n"


def test_retrieval(tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", docs_DOT_tsv=DOCS, queries_DOT_tsv=QUERIES, qrels_DOT_tsv=QRELS)
    [task] = find_tasks(str(folder))
    assert isinstance(task, Ranking)
    assert (task.name, task.kind, task.items) == ("mine", "retrieval", 2)  # q3 has no judgement
    texts = task.texts()
    assert (texts["queries"].role, texts["queries"].texts) == ("query", ("dogs", "cats"))
    assert (texts["documents"].role, texts["documents"].texts) == ("document", ("A dog barks.", "A cat sleeps."))
    assert task.relevance["q2"] == {"d2": 2.0, "d1": 0.0}
    write(folder, queries_train_DOT_tsv="q9\tdog\n", qrels_train_DOT_tsv="query\tdoc\tscore\nq9\td1\t1\n")
    [train] = find_tasks(f"{folder}:train")
    assert (train.name, train.items) == ("mine:train", 1)
    assert train.fingerprint != task.fingerprint


def test_retrieval_in_the_layout_of_beir(tmp_path: Path) -> None:
    documents = [
        {"_id": "d1", "title": "Dogs", "text": "They bark."},
        {"_id": "d2", "title": "", "text": "Cats sleep."},
    ]
    folder = write(
        tmp_path / "beir",
        corpus_DOT_jsonl="\n".join(map(json.dumps, documents)),
        queries_DOT_jsonl=json.dumps({"_id": "q1", "text": "dogs"}),
        qrels__test_DOT_tsv="query-id\tcorpus-id\tscore\nq1\td1\t1\n",
        qrels__dev_DOT_tsv="q1\t0\td2\t1\n",  # TREC's four columns
    )
    [task] = find_tasks(str(folder))
    assert isinstance(task, Ranking)
    assert task.documents == ("Dogs They bark.", "Cats sleep.")
    assert task.relevance == {"q1": {"d1": 1.0}}
    [dev] = find_tasks(f"{folder}:dev")
    assert isinstance(dev, Ranking)
    assert dev.relevance == {"q1": {"d2": 1.0}}
    with pytest.raises(DatasetError, match=r"no split 'train'.*the splits are: dev, test"):
        find_tasks(f"{folder}:train")


@pytest.mark.parametrize("with_ids", [False, True])
def test_reranking(tmp_path: Path, with_ids: bool) -> None:
    lines = [("dogs", "A dog.", 1), ("dogs", "A cat.", 0), ("cats", "A cow.", 0), ("cows", "A cow.", 1)]
    names = {text: f"id{i}" for i, text in enumerate(dict.fromkeys(text for a, b, _ in lines for text in (a, b)))}
    cells = [(names[a], names[b], c) if with_ids else (a, b, c) for a, b, c in lines]
    files = {"cands_dev_DOT_tsv": "\n".join("\t".join(map(str, row)) for row in cells)}
    if with_ids:
        files["texts_DOT_tsv"] = "\n".join(f"{id_}\t{text}" for text, id_ in names.items())
    [task] = find_tasks(f"{write(tmp_path / 'answers', **files)}:dev")
    assert isinstance(task, Reranking)
    assert (task.items, task.queries, task.documents) == (1, ("dogs",), ("A dog.", "A cat."))  # others have one class


def test_labels_are_two_tasks(tmp_path: Path) -> None:
    folder = write(tmp_path / "mail", test_DOT_tsv="hi\ta\nyo\tb\n", train_DOT_tsv="hey\ta\nho\tb\nhello\ta\n")
    classes, clusters = find_tasks(str(folder))
    assert isinstance(classes, Classification)
    assert isinstance(clusters, Clustering)
    assert (classes.train, classes.train_labels) == (("hey", "ho", "hello"), ("a", "b", "a"))
    assert clusters.labelled == ("hi", "yo")
    with gzip.open(folder / "more.tsv.gz", "wt") as file:
        file.write("x\ta\ny\tb\nz\ta\nw\tb\n")
    alone, _ = find_tasks(f"{folder}:more")
    assert (alone.name, alone.items) == ("mail:more", 2)
    by_path, _ = find_tasks(str(folder / "more.tsv.gz"))
    assert by_path.fingerprint == alone.fingerprint


def test_headers_are_no_texts(tmp_path: Path) -> None:
    lines = "x\ta\ny\tb\nz\ta\nw\tb\n"
    folder = write(tmp_path / "mail", all_DOT_tsv=f"Text\tLabel\n{lines}", plain_DOT_tsv=lines)
    classes, clusters = find_tasks(str(folder))
    assert isinstance(clusters, Clustering)
    assert clusters.labelled == ("x", "y", "z", "w")
    assert classes.fingerprint == find_tasks(f"{folder}:plain")[0].fingerprint
    first_blank = write(tmp_path / "blank", all_DOT_tsv=f"\ntext\tlabel\n{lines}")
    assert find_tasks(str(first_blank))[0].fingerprint == classes.fingerprint
    files = {"docs_DOT_tsv": f"id\ttext\n{DOCS}", "queries_DOT_tsv": f"id\ttext\n{QUERIES}"}
    [search] = find_tasks(str(write(tmp_path / "search", **files, qrels_DOT_tsv="q1\td1\t1\n")))
    assert isinstance(search, Ranking)
    assert "id" not in (*search.document_ids, *search.query_ids)


def test_pairs_by_their_scores(tmp_path: Path) -> None:
    write(tmp_path, a_DOT_tsv="1\tx\ty\n0\tx\tz\n", b_DOT_tsv="score\ts1\ts2\titem\n2.5\tx\ty\tq\n0\tx\tz\tq\n")
    [classes], [grades] = find_tasks(str(tmp_path / "a.tsv")), find_tasks(str(tmp_path / "b.tsv"))
    assert isinstance(classes, PairClassification)
    assert isinstance(grades, GradedPairs)
    assert (classes.name, grades.name) == ("a", "b")
    assert grades.pairs.scores.tolist() == [2.5, 0]


def test_names_below_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "tasks" / "labels" / "mail", all_DOT_tsv="x\ta\ny\tb\nz\ta\nw\tb\n")
    write(tmp_path / "tasks" / "pairs", same_DOT_tsv="1\tx\ty\n0\tx\tz\n")
    monkeypatch.setenv("ENSEMBED_DATA", str(tmp_path))
    assert [task.kind for task in find_tasks("mail")] == ["classification", "clustering"]
    assert [task.kind for task in find_tasks("same")] == ["pair classification"]
    with pytest.raises(AbsentDatasetError, match=r"no task 'nothing'.*has mail, same"):
        find_tasks("nothing")
    for outside in ("../tasks", "", "mail/.."):
        with pytest.raises(AbsentDatasetError):
            find_tasks(outside)
    assert find_tasks("mail", tmp_path)[0].name == "mail"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"readme": "x"}, "is no task: there is no docs.tsv.*but readme"),
        ({"docs_DOT_tsv": "a b\n"}, r"docs.tsv, line 1: 2 columns \(id, text\).* 1 seen"),
        ({"docs_DOT_tsv": DOCS + "d1\tagain\n"}, "line 4: the id 'd1' is there twice"),
        ({"docs_DOT_tsv": "d1\t\n"}, "holds no text"),
        ({"docs_DOT_tsv": DOCS}, "is not complete: there is no queries.tsv"),
        ({"docs_DOT_tsv": DOCS, "queries_DOT_tsv": QUERIES}, "no qrels.tsv"),
        ({"qrels_DOT_tsv": "q1\td1\thigh\n"}, "line 1: a number was expected as grade, 'high' seen"),
        ({"qrels_DOT_tsv": "q1 d1 1\n"}, "line 1: query, document and grade"),
        ({"qrels_DOT_tsv": "q7\td1\t1\n"}, "judgements of the query 'q7', which is not among the queries"),
        ({"qrels_DOT_tsv": "q1\td1\t0\n"}, "no query has a relevant document"),
        ({"cands_DOT_tsv": "q\tc\t1\n"}, "no query has both relevant and other candidates"),
        ({"cands_DOT_tsv": "q\tc\t1\n", "texts_DOT_tsv": "q\tx\n"}, r"line 1: 'c' is not in .*texts.tsv"),
        ({"test_DOT_tsv": "x\ta\ny\t\n"}, "line 2: the label is empty"),
        ({"test_DOT_tsv": "x\ta\ny\ta\n"}, "two different labels"),
        ({"test_DOT_tsv": "x\ta\ny\tb\n"}, "no label has two texts"),
        ({"test_DOT_tsv": "x\ta\ny\tb\n", "train_DOT_tsv": "z\ta\n"}, "no text to learn from has the label 'b'"),
        ({"corpus_DOT_jsonl": "{}\n", "queries_DOT_jsonl": ""}, "line 1 is no JSON object with an _id"),
        ({"corpus_DOT_jsonl": "[\n", "queries_DOT_jsonl": ""}, "line 1 is no JSON"),
        ({"corpus_DOT_jsonl": '{"_id": "a", "text": "b"}'}, "there is no queries.jsonl"),
        (
            {"corpus_DOT_jsonl": '{"_id": "a", "text": "b"}\n{"_id": "a", "text": "c"}', "queries_DOT_jsonl": ""},
            "line 2: the id 'a' is there twice",
        ),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, files: dict[str, str], message: str) -> None:
    if set(files) == {"qrels_DOT_tsv"}:
        files = {"docs_DOT_tsv": DOCS, "queries_DOT_tsv": QUERIES} | files
    with pytest.raises(DatasetError, match=message):
        find_tasks(str(write(tmp_path / "task", **files)))


def test_wrong_single_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    wide = "score\ta\tb\tc\n"
    for text, message in (
        ("one\n", "has 1: 'one'"),
        ("", "has 1"),
        (wide, "holds no pair"),
        (f"{wide}\n\n1\tx\ty\tq\n0\t\tz\tq\n", "line 5: a text of the pair is empty"),
        (f"{wide}1_0\tx\ty\tq\n", "line 2: a number was expected as grade, '1_0' seen"),
    ):
        path.write_text(text)
        with pytest.raises(DatasetError, match=message):
            find_tasks(str(path))
    with pytest.raises(DatasetError, match="is a file, which has no split 'dev'"):
        find_tasks(f"{path}:dev")
