"""Arrow's tables: types, NULLs and values."""

import pathlib
import sys

import pytest
from reading_cases import write_small_run

from tb_memplugin.errors import RequestError
from tb_memplugin.export.arrow import arrow_schema, arrow_table
from tb_memplugin.export.rows import rows_of_table, unit_tables
from tb_memplugin.export.schema import TABLES
from tb_memplugin.export.units import export_units


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RequestError, match=r"pip install 'tb-memplugin\[parquet\]'"):
        arrow_schema("samples")


def test_arrow_has_the_values_of_the_rows(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    write_small_run(tmp_path / "small", allocator=True)
    (unit,) = export_units(str(tmp_path))
    tables, _ = unit_tables(unit)
    for name, table in TABLES.items():
        arrow = arrow_table(name, tables[name])
        arrow.validate(full=True)
        assert arrow.schema == arrow_schema(name)
        assert arrow.to_pylist() == list(rows_of_table(name, tables[name]))
        # only columns that may be NULL are declared so
        assert [field.nullable for field in arrow.schema] == [bool(column.unknown) for column in table.columns]
