"""Modules of JAX's compiled functions, without JAX."""

import gzip
import pathlib
import types

from tb_memplugin.importers import hlo_class, read_dumped_module
from tb_memplugin.recorder.loop import jax_modules

DUMP = pathlib.Path(__file__).parents[3] / "fixtures" / "xla" / "gpu_keras_cnn.hlo.pb.gz"


def test_a_gpus_step_without_a_buffer_assignment_is_read_from_its_schedule_and_totals() -> None:
    # GIVEN what JAX 0.11.2 answered on a GPU: a module, totals, and no buffer assignment
    dump = hlo_class().FromString(gzip.decompress(DUMP.read_bytes()))
    module = dump.hlo_module.SerializeToString()
    stats = types.SimpleNamespace(
        serialized_buffer_assignment_proto=b"",
        argument_size_in_bytes=39_564_176,
        output_size_in_bytes=38_777_816,
        alias_size_in_bytes=38_777_488,
        temp_size_in_bytes=47_892_544,
        peak_memory_in_bytes=82_216_567,
    )
    executable = types.SimpleNamespace(
        hlo_modules=lambda: [types.SimpleNamespace(as_serialized_hlo_module_proto=lambda: module)],
        get_compiled_memory_stats=lambda: stats,
    )
    read = read_dumped_module(*jax_modules.serialized(executable))
    # THEN arguments and temporaries are those of XLA's dump
    assert sum(one.bytes for one in read.arguments) == stats.argument_size_in_bytes
    assert sum(one.bytes for one in read.arguments if one.returned) == stats.alias_size_in_bytes
    (temporaries,) = (one for one in read.allocations if not one.output)
    assert temporaries.bytes == stats.temp_size_in_bytes
    assert all(one.offset + one.bytes <= temporaries.bytes for one in temporaries.buffers)
