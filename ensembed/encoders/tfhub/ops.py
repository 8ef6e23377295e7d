"""Which ops of TensorFlow a model may hold: those that compute, and no others.

TensorFlow marks ops that have state or effects. An op without that mark computes its outputs from its inputs, but for
some families that read files, hold graphs in strings or talk to devices all the same: they are named here. Of the
marked ones only those are admitted that encoders are made of. What TensorFlow does not know is not admitted.
"""

from __future__ import annotations

import re
from typing import Any

# Parts of every SavedModel, which write and read its checkpoint. Where they may be is another question.
WRITERS = frozenset({"SaveV2", "MergeV2Checkpoints"})
RESTORERS = frozenset({"RestoreV2"})
# They read a vocabulary from a file, whose name is their second input.
TABLE_READERS = frozenset({"InitializeTableFromTextFile", "InitializeTableFromTextFileV2"})

# Without state or effects, TensorFlow says; but they
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

# Of those with state or effects, what models are made of.
_STATE = """
    VarHandleOp ReadVariableOp AssignVariableOp AssignAddVariableOp AssignSubVariableOp VarIsInitializedOp
    VariableShape Variable VariableV2 TemporaryVariable ResourceGather ResourceGatherNd ResourceScatterAdd
    ResourceScatterSub ResourceScatterUpdate ResourceScatterNdUpdate ResourceStridedSliceAssign DestroyResourceOp
    DisableCopyOnRead
"""
_TABLES = """
    HashTable HashTableV2 AnonymousHashTable MutableHashTable MutableHashTableV2 AnonymousMutableHashTable
    MutableHashTableOfTensors MutableHashTableOfTensorsV2 AnonymousMutableHashTableOfTensors MutableDenseHashTable
    MutableDenseHashTableV2 AnonymousMutableDenseHashTable InitializeTableV2 LookupTableExportV2 LookupTableFindV2
    LookupTableImportV2 LookupTableInsertV2 LookupTableRemoveV2 LookupTableSizeV2
"""
_CONTROL_FLOW = """
    StatefulPartitionedCall If While Case Assert CheckNumerics CheckNumericsV2 GuaranteeConst DeviceIndex DeepCopy Empty
    TensorArray TensorArrayV2 TensorArrayV3 TensorArrayCloseV3 TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayGrad
    TensorArrayGradV2 TensorArrayGradV3 TensorArrayGradWithShape TensorArrayReadV3 TensorArrayScatterV3
    TensorArraySizeV3 TensorArraySplitV3 TensorArrayWriteV3 Stack StackV2 StackCloseV2 StackPopV2 StackPushV2
"""
_RANDOM = """
    RandomUniform RandomUniformInt RandomStandardNormal RandomShuffle RandomGamma TruncatedNormal Multinomial
    ParameterizedTruncatedNormal StatefulUniform StatefulUniformInt StatefulUniformFullInt StatefulStandardNormalV2
    StatefulTruncatedNormal RngReadAndSkip RngSkip StatelessRandomGetAlg
"""
_RECURRENT = "CudnnRNN CudnnRNNV2 CudnnRNNV3"  # on a GPU
_WITH_STATE = frozenset(" ".join([_STATE, _TABLES, _CONTROL_FLOW, _RANDOM, _RECURRENT]).split())

# Of tensorflow_text, for the multilingual encoders; registered only once that is imported.
_TEXT_OPS = """
    SentencepieceOp SentencepieceTokenizeOp SentencepieceTokenizeWithOffsetsOp SentencepieceDetokenizeOp
    SentencepieceIdToStringOp SentencepieceStringToIdOp SentencepieceVocabSizeOp NormalizeUTF8 CaseFoldUTF8
    RegexSplitWithOffsets WhitespaceTokenizeWithOffsets WordpieceTokenizeWithOffsets UnicodeScriptTokenizeWithOffsets
    TFText>FastWordpieceTokenizeWithOffsets TFText>WhitespaceTokenizeWithOffsetsV2
"""
_TEXT = frozenset(_TEXT_OPS.split())


def is_admitted(op: str, registered: Any) -> bool:  # noqa: ANN401 - an OpDef, of a library without types
    """Whether a model may hold the op; those of savers are judged by where they are.

    Args:
        op: its name.
        registered: what TensorFlow knows of it; None if that is nothing.
    """
    if op in _TEXT or op in TABLE_READERS:
        return True
    if registered is None or ">" in op:  # namespaces belong to other packages
        return False
    if registered.is_stateful:
        return op in _WITH_STATE
    return not _NOT_JUST_COMPUTING.search(op)
