"""The exported tables as Apache Arrow's, which the extra ``parquet`` installs."""

from typing import Any

import numpy as np

from tb_memplugin.errors import RequestError
from tb_memplugin.export.rows import Rows
from tb_memplugin.export.schema import TABLES, VERSION
from tb_memplugin.model import MISSING


def pyarrow() -> Any:
    """The package.

    Raises:
        RequestError: It is not installed.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise RequestError(
            f"Parquet needs pyarrow: {error}. Install it with: pip install 'tb-memplugin[parquet]'"
        ) from error
    return pyarrow


def arrow_schema(table: str) -> Any:
    """The `pyarrow.Schema` of an exported table, by its name."""
    arrow = pyarrow()
    types = {
        "text": arrow.string(),
        "integer": arrow.int64(),
        "flag": arrow.bool_(),
        "time": arrow.timestamp("us"),
        "dimensions": arrow.list_(arrow.int64()),
    }
    fields = [
        arrow.field(
            column.name, types[column.kind], nullable=bool(column.unknown), metadata={"meaning": column.meaning}
        )
        for column in TABLES[table].columns
    ]
    return arrow.schema(fields, metadata={"tb_memplugin.export": str(VERSION)})


def arrow_table(table: str, rows: Rows) -> Any:
    """The `pyarrow.Table` of a table's columns."""
    arrow, schema = pyarrow(), arrow_schema(table)
    columns = []
    for field in schema:
        values = rows[field.name]
        if isinstance(values, np.ndarray):
            columns.append(arrow.array(values, arrow.int64(), mask=values == MISSING).cast(field.type))
        else:
            columns.append(arrow.array(values, field.type))
    return arrow.Table.from_arrays(columns, schema=schema)
