"""Check a SavedModel before any of it runs: it may compute and fill its tables from its assets, and no more.

Ops that TensorFlow marks as having state or effects are allowed only if encoders are made of them. Unmarked ops are
allowed, except some families, named here, that read files, hold graphs in strings or talk to devices. Unknown ops are
not allowed. A model with an object graph can run the functions that its objects name. One without can run its main
graph: what its signatures return, what its collections name (initialisers), and the saver's restore.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from ensembed.encoders.tfhub.tensorflow_start import import_quietly, one_line
from ensembed.errors import EncoderError
from ensembed.support.file_limits import open_regular

Proto: TypeAlias = Any  # protobuf messages have no types

# Ops that write and read the checkpoint are judged by where they are. Table readers have a file's name as second input.
WRITERS, RESTORERS = frozenset({"SaveV2", "MergeV2Checkpoints"}), frozenset({"RestoreV2"})
TABLE_READERS = frozenset({"InitializeTableFromTextFile", "InitializeTableFromTextFileV2"})

# Ops that TensorFlow says to be without state or effects, but which
_NOT_JUST_COMPUTING = re.compile(
    # read files (a descriptor of a protobuf message may be one) or make checkpoints,
    r"File(?!name)|Reader|ImmutableConst|VocabRemapping|Proto|Save|Restore|Snapshot|"
    # run other graphs, in datasets, in strings or in threads of their own,
    r"Dataset|Iterator|Optional|Mlir|SymbolicGradient|ompressElement|AtIndex|"
    r"^(Batch|Unbatch|UnbatchGrad|BatchFunction|MapDefun)$|"
    # run Python or other people's code, or end the process,
    r"PyFunc|CustomCall|CustomAggregator|^Abort$|"
    # report to a debugger, somewhere,
    r"Debug|^Copy(Host)?$|"
    # or talk to other devices, machines and threads. A leading underscore marks what is put in while a graph runs.
    r"Xla|TPU|Tpu|SparseCore|DTensor|Mesh|Relayout|Infeed|Prelinearize|Send|Recv|Collective|Queue|Barrier|Accumulator|^_"
)

# Ops with state or effects that models are made of.
_STATEFUL = """
    VarHandleOp ReadVariableOp AssignVariableOp AssignAddVariableOp AssignSubVariableOp VarIsInitializedOp
    VariableShape Variable VariableV2 TemporaryVariable ResourceGather ResourceGatherNd ResourceScatterAdd
    ResourceScatterSub ResourceScatterUpdate ResourceScatterNdUpdate ResourceStridedSliceAssign DestroyResourceOp
    DisableCopyOnRead
    HashTable HashTableV2 AnonymousHashTable MutableHashTable MutableHashTableV2 AnonymousMutableHashTable
    MutableHashTableOfTensors MutableHashTableOfTensorsV2 AnonymousMutableHashTableOfTensors MutableDenseHashTable
    MutableDenseHashTableV2 AnonymousMutableDenseHashTable InitializeTableV2 LookupTableExportV2 LookupTableFindV2
    LookupTableImportV2 LookupTableInsertV2 LookupTableRemoveV2 LookupTableSizeV2
    StatefulPartitionedCall If While Case Assert CheckNumerics CheckNumericsV2 GuaranteeConst DeviceIndex DeepCopy Empty
    TensorArray TensorArrayV2 TensorArrayV3 TensorArrayCloseV3 TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayGrad
    TensorArrayGradV2 TensorArrayGradV3 TensorArrayGradWithShape TensorArrayReadV3 TensorArrayScatterV3
    TensorArraySizeV3 TensorArraySplitV3 TensorArrayWriteV3 Stack StackV2 StackCloseV2 StackPopV2 StackPushV2
    RandomUniform RandomUniformInt RandomStandardNormal RandomShuffle RandomGamma TruncatedNormal Multinomial
    ParameterizedTruncatedNormal StatefulUniform StatefulUniformInt StatefulUniformFullInt StatefulStandardNormalV2
    StatefulTruncatedNormal RngReadAndSkip RngSkip StatelessRandomGetAlg
    CudnnRNN CudnnRNNV2 CudnnRNNV3
"""

# Of tensorflow_text, for the multilingual encoders; registered only once that is imported.
_TEXT = """
    SentencepieceOp SentencepieceTokenizeOp SentencepieceTokenizeWithOffsetsOp SentencepieceDetokenizeOp
    SentencepieceIdToStringOp SentencepieceStringToIdOp SentencepieceVocabSizeOp NormalizeUTF8 CaseFoldUTF8
    RegexSplitWithOffsets WhitespaceTokenizeWithOffsets WordpieceTokenizeWithOffsets UnicodeScriptTokenizeWithOffsets
    TFText>FastWordpieceTokenizeWithOffsets TFText>WhitespaceTokenizeWithOffsetsV2
"""
_ALLOWED_STATEFUL, _ALLOWED_TEXT = frozenset(_STATEFUL.split()), frozenset(_TEXT.split())

_SAVERS = WRITERS | RESTORERS
_MAIN = ""  # the key of the main graph, beside the names of the functions
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_INIT_SIGNATURE = "__saved_model_init_op"


def is_allowed(op: str, registered: Proto | None) -> bool:
    """Return whether a model may hold an op; `registered` is TensorFlow's definition of it, if it has one."""
    if op in _ALLOWED_TEXT or op in TABLE_READERS:
        return True
    if registered is None or ">" in op:  # namespaces belong to other packages
        return False
    return op in _ALLOWED_STATEFUL if registered.is_stateful else not _NOT_JUST_COMPUTING.search(op)


def check_graph(path: Path, name: str) -> list[str]:
    """Refuse a SavedModel that is damaged or could do more than compute; return the tags to load it by."""
    saved = import_quietly("tensorflow.core.protobuf.saved_model_pb2").SavedModel()
    try:
        with open_regular(path) as file:
            saved.ParseFromString(file.read())
    except Exception as error:  # protobuf's own, of a path that has changed between versions
        raise EncoderError(f"encoder {name!r}: {path} is damaged or no SavedModel: {one_line(error)}") from error
    if not saved.meta_graphs:
        raise EncoderError(f"encoder {name!r}: {path} is damaged or no SavedModel: there is no graph in it")
    tags = [sorted(set(meta.meta_info_def.tags)) for meta in saved.meta_graphs]
    # Hub modules of TF1 have an untagged graph for inference beside those for training.
    choices = [choice for choice in ([], ["serve"]) if choice in tags] or tags
    if len(choices) > 1 and choices is tags:
        raise EncoderError(f"encoder {name!r}: which of the model's graphs is for inference? Their tags are {tags}")
    for meta, graph_tags in zip(saved.meta_graphs, tags, strict=True):
        if graph_tags == choices[0]:  # the others are not loaded
            objects = len(saved.meta_graphs) == 1 and meta.HasField("object_graph_def")
            _GraphCheck(meta, objects=objects, name=name).check()
    return choices[0]


class _GraphCheck:
    """One MetaGraphDef with its functions; `objects` says that TensorFlow will load the objects, not the main graph."""

    def __init__(self, meta: Proto, *, objects: bool, name: str) -> None:
        self._meta, self._objects, self._name = meta, objects, name
        self._functions: dict[str, Proto] = {f.signature.name: f for f in meta.graph_def.library.function}
        bodies = {key: list(f.node_def) for key, f in self._functions.items()}
        self._bodies: dict[str, list[Proto]] = {**bodies, _MAIN: list(meta.graph_def.node)}
        self._main = {node.name: node for node in self._bodies[_MAIN]}
        calls = ((key, node, self._called(node)) for key, node in self._nodes())
        self._calls = [(key, node, called) for key, node, called in calls if called]
        self._named = self._named_by_objects() if objects else set()
        self._assets = {_node(asset.tensor_info.name) for asset in self._asset_files()}

    def check(self) -> None:
        """Raise an EncoderError if the graph could do more than compute."""
        registry = import_quietly("tensorflow.python.framework.op_def_registry")
        hidden = [key for key in self._functions if registry.get(key) is not None or not key]
        if hidden or len(self._functions) != len(self._meta.graph_def.library.function):
            raise self._refused(f"its functions have the names of ops, or of each other: {', '.join(hidden)}")
        unknown = {node.op for _, node in self._nodes()} - self._functions.keys() - _SAVERS
        if bad := sorted(op for op in unknown if not is_allowed(op, registry.get(op))):
            more = "(read or write files, run Python or hidden graphs, reach other machines)"
            why = f"which can do more than compute {more}, or which TensorFlow does not know"
            raise self._refused(f"its graph holds {', '.join(bad)}, {why}")
        for asset in self._asset_files():
            path = PurePosixPath(asset.filename)
            if path.is_absolute() or ".." in path.parts or ":" in asset.filename or "\\" in asset.filename:
                raise self._refused(f"it has a file outside of its folder for an asset: {asset.filename!r}")
        self._check_savers()
        self._check_table_files()

    def _check_savers(self) -> None:
        """Check that checkpoints are written and read through the saver only, and not written when restoring."""
        holders = self._holders(_SAVERS)
        # Functions of the same `api_implements` are exchanged for each other while a graph runs.
        if holders & self._named or any("api_implements" in self._functions[key].attr for key in holders):
            raise self._refused("it writes or reads checkpoints when it is called")
        if self._objects:
            return
        saver, touched = self._meta.saver_def, self._after(_SAVERS)
        if self._mentioned(touched):
            raise self._refused("it writes or reads checkpoints when it is called")
        restore, filename = _node(saver.restore_op_name), _node(saver.filename_tensor_name)
        if {restore, filename} & self._after(WRITERS) or filename in touched:
            raise self._refused("it writes checkpoints when it is opened")
        main = self._bodies[_MAIN]
        before = _closure([restore], ((node.name, _node(tensor)) for node in main for tensor in node.input))
        starts = [called for key, node, called in self._calls if key == _MAIN and node.name in before]
        edges = ((key, function) for key, _, functions in self._calls for function in functions)
        called = _closure(set().union(*starts), edges)
        for key, node in self._nodes(RESTORERS):
            runs = key in called if key else node.name in before
            if runs and not self._comes_from(key, _input(node, 0), {filename}):
                raise self._refused("it reads another checkpoint than its own")

    def _check_table_files(self) -> None:
        """Check that tables are filled from assets."""
        if not self._objects:  # the names of assets are filled in for initialisers only
            signatures = [value for key, value in self._meta.signature_def.items() if key != _INIT_SIGNATURE]
            run = {_node(text) for value in signatures for text in _outputs(value)}
            if self._after(TABLE_READERS) & (run | {_node(self._meta.saver_def.restore_op_name)}):
                raise self._refused("it reads files when it is called")
        if any("api_implements" in self._functions[key].attr for key in self._holders(TABLE_READERS)):
            raise self._refused("it reads files in a function that TensorFlow exchanges for others")
        for key, node in self._nodes(TABLE_READERS):
            if self._objects and key == _MAIN:
                continue
            if not self._comes_from(key, _input(node, 1), self._assets):
                raise self._refused("it fills a table from a file that is not one of its assets")

    def _comes_from(self, key: str, tensor: str, nodes: set[str], seen: frozenset[str] = frozenset()) -> bool:
        """Return whether a tensor is an asset or the output of one of these nodes of the main graph."""
        source = self._source(key, tensor)
        if key == _MAIN or not source:
            return bool(source) and source in nodes
        arguments = self._functions[key].signature.input_arg
        names = [argument.name for argument in arguments]
        if source not in names or any(argument.number_attr or argument.type_list_attr for argument in arguments):
            return False
        position = names.index(source)
        if key in self._named and not self._is_asset(key, position - len(names)):
            return False
        return key in seen or all(
            (node.op in _CALLS or node.op == key)
            and self._comes_from(caller, _input(node, position), nodes, seen | {key})
            for caller, node, called in self._calls
            if key in called and (caller or not self._objects)  # with objects the main graph does not run
        )

    def _source(self, key: str, tensor: str) -> str:
        """Return the node or the argument that a tensor comes from, through identities."""
        nodes = {node.name: node for node in self._bodies[key]} if key else self._main
        for _ in range(len(nodes) + 1):
            node = nodes.get(_node(tensor))
            if node is None or node.op != "Identity" or not node.input:
                break
            tensor = node.input[0]
        # A node that is no identity counts in the main graph only: in a function, arguments count.
        return "" if key and _node(tensor) in nodes else _node(tensor)

    def _is_asset(self, key: str, position: int) -> bool:
        """Return whether an argument, counted from the end, is bound to an asset by the object graph."""
        objects = self._meta.object_graph_def
        known = self._objects and key in objects.concrete_functions
        bound = objects.concrete_functions[key].bound_inputs if known else ()
        if -position > len(bound) or not 0 <= bound[position] < len(objects.nodes):
            return False
        return bool(objects.nodes[bound[position]].WhichOneof("kind") == "asset")

    def _named_by_objects(self) -> set[str]:
        """Return the functions that objects name."""
        objects = self._meta.object_graph_def
        named: set[str] = set(objects.concrete_functions)
        for node in objects.nodes:
            named |= {*node.function.concrete_functions, node.bare_concrete_function.concrete_function_name}
            named.add(node.captured_tensor.concrete_function)
        return named & self._functions.keys()

    def _nodes(self, ops: frozenset[str] | None = None) -> Iterator[tuple[str, Proto]]:
        return ((key, node) for key, body in self._bodies.items() for node in body if ops is None or node.op in ops)

    def _called(self, node: Proto) -> set[str]:
        return {key for key in (node.op, *_functions_in(node.attr)) if key in self._functions}

    def _holders(self, ops: frozenset[str]) -> set[str]:
        """Return the functions that hold such ops, or call functions that do."""
        callers = ((function, key) for key, _, called in self._calls for function in called)
        return _closure((key for key, _ in self._nodes(ops) if key), callers) - {_MAIN}

    def _after(self, ops: frozenset[str]) -> set[str]:
        """Return the nodes of the main graph that run such ops, and all that depend on them."""
        holders, main = self._holders(ops), self._bodies[_MAIN]
        starts = [node.name for node in main if node.op in ops or self._called(node) & holders]
        return _closure(starts, ((_node(tensor), node.name) for node in main for tensor in node.input))

    def _mentioned(self, names: set[str]) -> bool:
        """Return whether signatures or collections name such a node."""
        texts = {_node(text) for value in self._meta.signature_def.values() for text in _outputs(value)}
        encoded: list[bytes] = []
        for key, collection in self._meta.collection_def.items():
            if key == "savers":
                continue
            texts |= {_node(text) for text in collection.node_list.value}
            encoded += [*collection.bytes_list.value, *(value.value for value in collection.any_list.value)]
        return bool(texts & names) or any(name.encode() in value for name in names for value in encoded)

    def _asset_files(self) -> list[Proto]:
        """Return the assets as the loader finds them: TF1's models have them in a collection."""
        if self._meta.asset_file_def or "saved_model_assets" not in self._meta.collection_def:
            return list(self._meta.asset_file_def)
        kind = import_quietly("tensorflow.core.protobuf.meta_graph_pb2").AssetFileDef
        return [kind.FromString(v.value) for v in self._meta.collection_def["saved_model_assets"].any_list.value]

    def _refused(self, reason: str) -> EncoderError:
        return EncoderError(f"encoder {self._name!r} is refused: {reason}; no encoder of text needs that")


def _node(tensor: str) -> str:
    """Return the name of the node of a tensor, `NODE:0`, or of a control input, `^NODE`."""
    return tensor.lstrip("^").partition(":")[0]


def _input(node: Proto, position: int) -> str:
    return str(node.input[position]) if position < len(node.input) else ""


def _outputs(signature: Proto) -> Iterator[str]:
    """Yield the names of all tensors that a signature returns."""
    waiting = list(signature.outputs.values())
    while waiting:
        info = waiting.pop()
        sparse = info.coo_sparse
        yield from (info.name, sparse.values_tensor_name, sparse.indices_tensor_name, sparse.dense_shape_tensor_name)
        waiting += info.composite_tensor.components


def _functions_in(attributes: Proto) -> Iterator[str]:
    """Yield the names of functions among the attributes of a node."""
    for value in attributes.values():
        for function in (value.func, *value.list.func) if value.WhichOneof("value") in ("func", "list") else ():
            yield function.name
            yield from _functions_in(function.attr)


def _closure(starts: Iterable[str], edges: Iterable[tuple[str, str]]) -> set[str]:
    """Return the starts and all that edges lead to from there."""
    successors = defaultdict[str, list[str]](list)
    for source, target in edges:
        successors[source].append(target)
    reached, waiting = set[str](), list(starts)
    while waiting:
        if (name := waiting.pop()) not in reached:
            reached.add(name)
            waiting += successors[name]
    return reached
