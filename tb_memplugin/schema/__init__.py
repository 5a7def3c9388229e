"""The contents of a run as plain immutable data, without TensorFlow, TensorBoard or HTTP.

Fields named ``_bytes`` are sizes in bytes. ``None`` means "unknown", never zero. Steps count training steps from 0.
"""

from tb_memplugin.schema import downsample
from tb_memplugin.schema.basics import (
    MAX_STEP,
    MISSING,
    MODES,
    PHASES,
    Floats,
    Integers,
    Mode,
    Phase,
    distinct,
    is_cpu,
    is_gpu,
    last_known,
    optional_column,
    optional_values,
    values_of,
)
from tb_memplugin.schema.downsample import extreme_rows
from tb_memplugin.schema.fields import (
    MAX_BYTES,
    MAX_ROWS,
    Bounds,
    Field,
    column_names,
    fields_of,
    meanings,
    stored_fields,
)
from tb_memplugin.schema.groups import Group, GroupBytes, TracedPeak, group_sums, ledger_totals
from tb_memplugin.schema.layers import (
    Layer,
    LayerTable,
    Recomputed,
    example_bytes,
    former_name,
    recorded_precision,
    replaced_optimizer,
    unfreezing_bytes,
    unused,
)
from tb_memplugin.schema.memory_map import (
    FREE,
    IN_USE,
    OWNER_SOURCES,
    UNKNOWN_STATE,
    ChunkOwner,
    MemoryMap,
    OwnerSource,
)
from tb_memplugin.schema.notes import (
    NOT_RECORDING,
    RECORDING,
    SAMPLES,
    WRONG_NUMBERS,
    WRONG_PHASES,
    lost_step_notes,
    thinned_note,
    unrecorded_devices,
)
from tb_memplugin.schema.oom import (
    FAILED_DURING,
    FIX_KINDS,
    OOM_STATUSES,
    VERDICTS,
    FailedDuring,
    Fix,
    FixKind,
    Oom,
    OomStatus,
    Verdict,
    settled_ooms,
    with_failed_steps,
)
from tb_memplugin.schema.plain import as_json
from tb_memplugin.schema.requests import (
    GRADIENT_OPS,
    RESULTS,
    SCRATCH_POWER,
    SQUARE_POWER,
    UNKNOWN_POWER,
    StepRequests,
    owned,
)
from tb_memplugin.schema.retaining_paths import OMITTED, SEPARATOR, common_path
from tb_memplugin.schema.rounding import rounding_total, split_rounding
from tb_memplugin.schema.rows import flat, join_rows, take_rows
from tb_memplugin.schema.run import COUNTER_KINDS, CounterKind, Counters, Run, Session, SessionInfo, with_layers_of
from tb_memplugin.schema.samples import (
    SAMPLE_COLUMNS,
    DeviceSamples,
    LayerActivations,
    Samples,
    full_device_name,
    measured_pools,
    one_row_a_step,
)
from tb_memplugin.schema.snapshot import (
    CATEGORIES,
    DATA_SET,
    GRADIENTS,
    LISTS,
    MADE_DENSE,
    PERSISTENT,
    Category,
    HeldTensorGroup,
    LedgerRow,
    Pool,
    Replay,
    SavedRow,
    Snapshot,
    pool_of,
    stack_order,
)
from tb_memplugin.schema.tensors import DTYPE_BYTES, TensorShape, dimensions, matches, tensor_shape
from tb_memplugin.schema.text import (
    clean,
    did_you_mean,
    format_table,
    html_details,
    html_table,
    html_text,
    some,
    unknown_name,
)
from tb_memplugin.schema.timeline import BAND_NAMES, Band, BandName, CompiledSpan, Timeline, live_sums
from tb_memplugin.schema.trace import (
    LAYER_PREFIX,
    LINE_MARK,
    AllocationTrace,
    BatchFacts,
    Buffer,
    BufferAllocation,
    ConstantFact,
    Earlier,
    GraphFacts,
    Intervals,
    KnownChunk,
    Module,
    OpFact,
    Pass,
    TensorFact,
    TensorSpec,
    TraceFacts,
    VariableFact,
    VariableRole,
)
from tb_memplugin.schema.units import SIZE_RULE, UNKNOWN, counted, format_bytes, format_figure, parse_bytes, unit_for
from tb_memplugin.schema.worker_summary import NO_STEPS, DeviceSummary, RunStatus, WorkerSummary
