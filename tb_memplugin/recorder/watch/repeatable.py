"""Which operations return the same when a segment of layers runs again. Imports nothing of TensorFlow."""

REPEATABLE = frozenset(
    {
        *("Assert", "CheckNumerics", "CheckNumericsV2", "PrintV2", "StringFormat"),
        *("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"),  # Keras leaves dropout to its own layers
        *("LookupTableFind", "LookupTableFindV2", "LookupTableSize", "LookupTableSizeV2"),  # vocabularies
    }
)
"""Types of ops that TensorFlow marks as stateful although they return the same when they run again."""
ASSIGNING = frozenset({"AssignAddVariableOp", "AssignSubVariableOp", "AssignVariableOp"})
"""Types of ops that change a variable. A trainable one that changes in the forward pass would change twice."""
OF_VARIABLES = ASSIGNING | {
    *("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarHandleOp", "VarIsInitializedOp", "VariableShape"),
}
"""Types of stateful ops of variables, which a second pass is given as they were in the first one."""


def repeats(op_type: str, is_stateful: bool) -> bool:
    """Whether an op returns the same in a second pass, given the same inputs."""
    return not is_stateful or op_type in REPEATABLE
