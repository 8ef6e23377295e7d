"""Graphs that do more than compute are refused before they run: by their ops, and by where savers and files are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from make_tfhub import Tensor, make_function, make_tf1, make_tf2

from ensembed.encoders import open_encoder
from ensembed.encoders.tfhub.saved_model_checks import RESTORERS, WRITERS, Proto, check_graph, is_allowed
from ensembed.encoders.tfhub.tensorflow_start import import_quietly, start_tensorflow
from ensembed.errors import EncoderError

# Words that smell of files, other processes, or code that is not in the graph.
DANGEROUS = re.compile(
    "File|Dataset|Iterator|Save|Restore|Merge|Checkpoint|Rpc|PyFunc|Send|Recv|Collective|Nccl|Xla|TPU|Tpu|Dump|Print|"
    "Debug|Summary|Reader|Writer|Deserialize|Event|Remote|Proto|Session|Thread|Sleep|Load|Cache|Record|Custom|Stage|"
    "Queue|Barrier|Abort|Vocab|Immutable|Mlir|GraphDef|Server|Service|Client|Heartbeat|Skipgram|Sampler|Infeed|Outfeed"
)
# Admitted all the same: vocabularies, which must be assets; names and texts, which are just computed; control flow of
# TF1; sparse tensors.
HARMLESS = """
    InitializeTableFromTextFile InitializeTableFromTextFileV2 ShardedFilename Merge RefMerge MergeSummary ScalarSummary
    HistogramSummary ImageSummary AudioSummary AudioSummaryV2 TensorSummary TensorSummaryV2 BoostedTreesMakeStatsSummary
    DeserializeSparse DeserializeManySparse MergeDedupData
"""


@pytest.fixture(scope="module")
def registry() -> dict[str, Proto]:
    """All ops that TensorFlow has."""
    session = import_quietly("tensorflow.python.client.pywrap_tf_session")
    ops = import_quietly("tensorflow.core.framework.op_def_pb2").OpList()
    ops.ParseFromString(session.TF_GetBuffer(session.TF_GetAllOpList()))
    return {op.name: op for op in ops.op}


def test_no_op_with_a_dangerous_name_is_allowed(registry: dict[str, Proto]) -> None:
    admitted = {name for name, op in registry.items() if is_allowed(name, op)}
    assert {name for name in admitted if DANGEROUS.search(name)} <= set(HARMLESS.split())
    assert len(registry) > 1500
    assert len(admitted) > 800  # or the test would see nothing
    assert not admitted & (WRITERS | RESTORERS)


def test_ops_that_reach_outside_are_refused_and_others_allowed(registry: dict[str, Proto]) -> None:
    refused = """
        ReadFile WriteFile MatchingFiles PyFunc EagerPyFunc PyFuncStateless WholeFileReaderV2 TFRecordReaderV2 Save
        SaveSlices DistributedSave Restore RestoreSlice LoadAndRemapMatrix GenerateVocabRemapping ImmutableConst
        DecodeProtoV2 EncodeProto XlaCustomCall XlaCustomCallV2 XlaCallModule XlaLaunch MlirPassthroughOp Send Recv
        _Send _Recv CollectiveReduce CollectiveBcastSendV2 DatasetFromGraph DatasetToGraphV2 DatasetToSingleElement
        MapDataset TextLineDataset TFRecordDatasetV2 SaveDatasetV2 CacheDatasetV2 SnapshotDatasetV2 GeneratorDataset
        OneShotIterator IteratorGetNext InitializeTableFromDataset DebugIdentity DebugIdentityV2 DebugIdentityV3
        DebugNumericSummary Copy CopyHost Print PrintV2 RpcCall RpcServerStart RemoteCall CreateSummaryFileWriter
        CreateSummaryDbWriter DumpTensor FileSystemSetConfiguration SymbolicGradient BatchFunction Abort
        FixedUnigramCandidateSampler Skipgram ImportEvent TPUPartitionedCall QueueDequeueV2 CustomAggregator
        DTensorRestoreV2 Namespace>TestStringOutput
    """
    harmless = """
        ShardedFilename InitializeTableFromTextFileV2 HashTableV2 LookupTableFindV2 LookupTableFind Einsum
        BatchMatMulV2 StringSplitV2 StringToHashBucketFast SparseSegmentSqrtN SparseSegmentMean RegexReplace
        StaticRegexReplace Substr StringJoin StringLower UnicodeTranscode RaggedTensorToTensor Unpack Bucketize Where
        Unique GatherV2 ResourceGather PartitionedCall StatefulPartitionedCall If While StatelessIf StatelessWhile
        Switch Merge Enter Exit NextIteration LoopCond TensorArrayV3 TensorArrayReadV3 TensorListReserve
        TensorListElementShape NthElement RandomUniform Assert NoOp Placeholder PlaceholderWithDefault VarHandleOp
        ReadVariableOp AssignVariableOp VariableV2 Assign Const DisableCopyOnRead Tanh Softmax Erf Rsqrt
        SquaredDifference TopKV2 ScalarSummary
    """
    assert [op for op in refused.split() if op not in registry or is_allowed(op, registry[op])] == []
    assert [op for op in harmless.split() if not is_allowed(op, registry[op])] == []


def test_text_ops_are_allowed_without_tensorflow_text() -> None:
    assert is_allowed("SentencepieceTokenizeOp", None)
    assert not is_allowed("SentencepieceWriteOp", None)


Attack = Callable[[ModuleType, Tensor, str], object]


def hidden_graph(tf: ModuleType, text: Tensor, marker: str) -> Tensor:
    """A data set that writes a file, as a string that is no constant."""

    def body(x: Tensor) -> Tensor:
        with tf.control_dependencies([tf.io.write_file(marker, "here")]):
            return tf.identity(x)

    with tf.init_scope():
        data = tf.data.Dataset.from_tensors(tf.constant(1.0)).map(body)
        graph = tf.raw_ops.DatasetToGraphV2(
            input_dataset=data._variant_tensor, external_state_policy=1, strip_device_assignment=False
        ).numpy()
    variant = tf.raw_ops.DatasetFromGraph(graph_def=tf.strings.join([graph, tf.strings.substr(text[0], 0, 0)]))
    return tf.raw_ops.DatasetToSingleElement(dataset=variant, output_types=[tf.float32], output_shapes=[[]])[0]


def save_v2(tf: ModuleType, text: Tensor, marker: str) -> Tensor:
    size = tf.size(text)
    return tf.raw_ops.SaveV2(prefix=marker, tensor_names=["a"], shape_and_slices=[""], tensors=[size])


def save_in_a_branch(tf: ModuleType, text: Tensor, marker: str) -> Tensor:
    def save() -> Tensor:
        with tf.control_dependencies([save_v2(tf, text, marker)]):
            return tf.identity(1)

    return tf.cond(tf.size(text) > 0, save, lambda: tf.constant(0))


ATTACKS: list[tuple[str, Attack]] = [
    ("holds WriteFile, which", lambda tf, _, marker: tf.io.write_file(marker, "here")),
    ("holds DatasetFromGraph, DatasetToSingleElement, which", hidden_graph),
    (
        "holds Save, which",
        lambda tf, text, marker: tf.raw_ops.Save(filename=marker, tensor_names=["a"], data=[tf.size(text)]),
    ),
    ("checkpoints when it is called", save_v2),
    ("checkpoints when it is called", save_in_a_branch),
    ("holds PrintV2, which", lambda tf, text, marker: tf.print(text, output_stream=f"file://{marker}")),
    (
        "holds EagerPyFunc, which",
        lambda tf, text, marker: tf.py_function(lambda _: Path(marker).write_text("here"), [text], tf.int32),
    ),
]


@pytest.mark.parametrize(("message", "attack"), ATTACKS)
def test_graph_that_writes_files_is_refused_before_it_runs(tmp_path: Path, message: str, attack: Attack) -> None:
    tf = start_tensorflow()

    def write(text: Tensor) -> Tensor:
        with tf.control_dependencies([attack(tf, text, str(tmp_path / "marker"))]):
            return tf.cast(tf.strings.length(text), tf.float32)[:, None]

    model = make_function(tmp_path / "model", write)
    with pytest.raises(EncoderError, match=f"is refused: .*{message}.*no encoder of text needs that"):
        open_encoder(f"tfhub:{model}")
    assert not list(tmp_path.glob("marker*"))
    tf.saved_model.load(str(model))(tf.constant(["a"]))
    assert list(tmp_path.glob("marker*"))  # it would have


@pytest.mark.parametrize(
    ("message", "attack"),
    [
        (
            "checkpoints when it is called",
            lambda tf, _, file: tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=[file], destination_prefix=file),
        ),
        ("checkpoints when it is called", lambda tf, _, file: tf.raw_ops.RestoreV2(
            prefix=file, tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32])),
        ("from a file that is not one of its assets", lambda tf, _, file: tf.raw_ops.InitializeTableFromTextFileV2(
            table_handle=tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64),
            filename=file, key_index=-2, value_index=-1)),
        ("holds ReadFile", lambda tf, _, file: tf.io.read_file(file)),
    ],
)  # fmt: skip
def test_graph_that_reads_other_files_is_refused(tmp_path: Path, message: str, attack: Attack) -> None:
    tf = start_tensorflow()

    def touch(text: Tensor) -> Tensor:
        attack(tf, text, str(tmp_path / "file"))
        return tf.cast(tf.strings.length(text), tf.float32)[:, None]

    model = make_function(tmp_path / "model", touch)
    with pytest.raises(EncoderError, match=f"is refused: .*{message}"):
        open_encoder(f"tfhub:{model}")


@contextmanager
def edited(model: Path) -> Iterator[Proto]:
    """The first graph of a model, to be changed."""
    path = model / "saved_model.pb"
    saved = import_quietly("tensorflow.core.protobuf.saved_model_pb2").SavedModel.FromString(path.read_bytes())
    yield saved.meta_graphs[0]
    path.write_bytes(saved.SerializeToString())


def save_by_signature(meta: Proto) -> None:
    meta.signature_def["default"].outputs["default"].name = meta.saver_def.save_tensor_name


def save_by_initialiser(meta: Proto) -> None:
    meta.collection_def["saved_model_main_op"].node_list.value.append("save/Identity")


def save_by_variable(meta: Proto) -> None:
    meta.collection_def["local_variables"].bytes_list.value.append(b"\n\x04x\x12\x0dsave/Identity")


def save_by_restore(meta: Proto) -> None:
    next(node for node in meta.graph_def.node if node.name == "save/restore_all").input.append("^save/Identity")


def save_under_another_name(meta: Proto) -> None:
    meta.saver_def.restore_op_name = "save/SaveV2"


def restore_elsewhere(meta: Proto) -> None:
    next(node for node in meta.graph_def.node if node.op == "RestoreV2").input[0] = "save/ShardedFilename"


def table_from_elsewhere(meta: Proto) -> None:
    next(node for node in meta.graph_def.node if "TextFile" in node.op).input[1] = "save/filename"


def table_while_restoring(meta: Proto) -> None:
    table = next(node.name for node in meta.graph_def.node if "TextFile" in node.op)
    next(node for node in meta.graph_def.node if node.name == "save/restore_all").input.append(f"^{table}")


def asset_from_elsewhere(meta: Proto) -> None:
    meta.asset_file_def.add(filename="../../secret").tensor_info.name = "asset_path:0"


def function_for_an_op(meta: Proto) -> None:
    meta.graph_def.library.function.add().signature.name = "WriteFile"


def two_functions(meta: Proto) -> None:
    for _ in range(2):
        meta.graph_def.library.function.add().signature.name = "f"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (save_by_signature, "checkpoints when it is called"),
        (save_by_initialiser, "checkpoints when it is called"),
        (save_by_variable, "checkpoints when it is called"),
        (save_by_restore, "writes checkpoints when it is opened"),
        (save_under_another_name, "writes checkpoints when it is opened"),
        (restore_elsewhere, "another checkpoint than its own"),
        (table_from_elsewhere, "a file that is not one of its assets"),
        (table_while_restoring, "reads files when it is called"),
        (asset_from_elsewhere, r"outside of its folder for an asset: '\.\./\.\./secret'"),
        (function_for_an_op, "its functions have the names of ops"),
        (two_functions, "or of each other"),
    ],
)
def test_main_graph_with_misplaced_savers_or_files_is_refused(
    tmp_path: Path, change: Callable[[Proto], None], message: str
) -> None:
    model = make_tf1(tmp_path / "model")
    assert check_graph(model / "saved_model.pb", "x") == []
    with edited(model) as meta:
        change(meta)
    with pytest.raises(EncoderError, match=f"'x' is refused: .*{message}"):
        check_graph(model / "saved_model.pb", "x")


def call_the_saver(meta: Proto) -> None:
    save = next(f.signature.name for f in meta.graph_def.library.function if "traced_save" in f.signature.name)
    node = next(node for node in meta.object_graph_def.nodes if node.WhichOneof("kind") == "bare_concrete_function")
    node.bare_concrete_function.concrete_function_name = save


def exchange_the_saver(meta: Proto) -> None:
    save = next(f for f in meta.graph_def.library.function if "traced_save" in f.signature.name)
    save.attr["api_implements"].s = b"lstm"


def exchange_the_initialiser(meta: Proto) -> None:
    save = next(f for f in meta.graph_def.library.function if "initializer" in f.signature.name)
    save.attr["api_implements"].s = b"lstm"


def constant_for_an_asset(meta: Proto) -> None:
    objects = meta.object_graph_def
    initialiser = next(key for key in objects.concrete_functions if "initializer" in key)
    kinds = [node.WhichOneof("kind") for node in objects.nodes]
    objects.concrete_functions[initialiser].bound_inputs[0] = kinds.index("constant")


def caller_of_an_initialiser(meta: Proto) -> None:
    """A function that passes a name of its own."""
    functions = meta.graph_def.library.function
    initialiser = next(f.signature.name for f in functions if "initializer" in f.signature.name)
    body = next(f for f in functions if "signature_wrapper" in f.signature.name)
    node = body.node_def.add(name="evil", op="StatefulPartitionedCall", input=["text", "unknown"])
    node.attr["f"].func.name = initialiser


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (call_the_saver, "checkpoints when it is called"),
        (exchange_the_saver, "checkpoints when it is called"),
        (exchange_the_initialiser, "a function that TensorFlow exchanges"),
        (constant_for_an_asset, "a file that is not one of its assets"),
        (caller_of_an_initialiser, "a file that is not one of its assets"),
    ],
)
def test_object_graph_with_misplaced_savers_or_files_is_refused(
    tmp_path: Path, change: Callable[[Proto], None], message: str
) -> None:
    model = make_tf2(tmp_path / "model")
    assert check_graph(model / "saved_model.pb", "x") == ["serve"]
    with edited(model) as meta:
        change(meta)
    with pytest.raises(EncoderError, match=f"'x' is refused: .*{message}"):
        check_graph(model / "saved_model.pb", "x")


def test_checked_graph_is_the_one_that_is_loaded(tmp_path: Path) -> None:
    """TensorFlow compares tags as sets: a graph that says its tag twice comes first."""
    model = make_tf2(tmp_path / "model")
    path = model / "saved_model.pb"
    saved = import_quietly("tensorflow.core.protobuf.saved_model_pb2").SavedModel.FromString(path.read_bytes())
    saved.meta_graphs.add().CopyFrom(saved.meta_graphs[0])
    saved.meta_graphs[0].meta_info_def.tags.append("serve")
    saved.meta_graphs[0].graph_def.node.add(name="evil", op="WriteFile")
    path.write_bytes(saved.SerializeToString())
    with pytest.raises(EncoderError, match="WriteFile"):
        check_graph(path, "x")


def test_loops_recurrent_layers_and_ragged_text_are_allowed(tmp_path: Path) -> None:
    tf = start_tensorflow()

    def encode(text: Tensor) -> Tensor:
        words = tf.strings.split(tf.strings.regex_replace(tf.strings.lower(text), "[^a-z ]", ""))
        ids = tf.strings.to_hash_bucket_fast(words, 10).to_tensor()
        total = tf.while_loop(
            lambda i, _: i < tf.shape(ids)[1],
            lambda i, sums: (i + 1, sums + tf.one_hot(ids[:, i], 10)),
            (0, tf.zeros([tf.size(text), 10])),
        )[1]
        scanned = tf.scan(lambda a, b: a + b, tf.transpose(total))
        return tf.nn.dropout(tf.transpose(scanned), 0.0) + 0 * tf.random.uniform([10])

    assert open_encoder(f"tfhub:{make_function(tmp_path / 'model', encode)}").spec.dim == 10
