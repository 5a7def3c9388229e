"""A memory summary, as it is read."""

import dataclasses

from tb_memplugin.device_contents import CategorySum, DeviceContents, LayerSum, MemorySummary

MIB = 1 << 20
DEVICE = DeviceContents(
    device="GPU:0",
    allocated_bytes=7 * MIB,
    peak_bytes=9 * MIB,
    capacity_bytes=None,
    pool_bytes=16 * MIB,
    free_bytes=9 * MIB,
    largest_free_bytes=8 * MIB,
    categories=(
        CategorySum("unattributed", None, MIB, None),
        CategorySum("weights", True, 4 * MIB, 2),
        CategorySum("weights", False, 2 * MIB, 1),
    ),
    layers=tuple(LayerSum(f"net/<{number}>", MIB, 0) for number in range(12)),
)
SUMMARY = MemorySummary(("net",), 41, (DEVICE,), ("a note",))


def test_the_text_has_the_figures_and_the_ten_largest_layers() -> None:
    lines = str(SUMMARY).splitlines()
    assert lines[:4] == [
        "Memory of model net, after training step 41",
        "",
        "GPU:0: 7.0 MiB allocated, peak 9.0 MiB",
        "16.0 MiB reserved, 9.0 MiB free, largest free chunk 8.0 MiB",
    ]
    assert [line.split() for line in lines[5:10]] == [
        ["category", "size", "tensors"],
        ["unattributed", "1.0", "MiB"],
        ["trainable", "weights", "4.0", "MiB", "2"],
        ["frozen", "weights", "2.0", "MiB", "1"],
        ["allocated", "7.0", "MiB"],
    ]
    assert [line.split()[0] for line in lines if "net/" in line] == [
        f"net/<{number}>" for number in range(10)
    ]
    assert lines[-1] == "Note: a note"


def test_a_notebook_shows_tables_and_escapes_names() -> None:
    shown = SUMMARY._repr_html_()
    assert "net/&lt;0&gt;" in shown and "net/<" not in shown and shown.count("<table>") == 2
    assert "Note: a note" in shown and repr(SUMMARY) == "<MemorySummary GPU:0: 7.0 MiB allocated>"


def test_the_models_are_named_and_without_a_device_there_are_only_notes() -> None:
    def title(*models: str, step: int | None = None) -> str:
        return str(dataclasses.replace(SUMMARY, models=models, step=step)).splitlines()[0]

    assert title() == "Memory of model (none found)"
    assert title("net") == "Memory of model net"
    assert title("a", "b", step=0) == "Memory of 2 models: a, b, after training step 0"
    assert title("a", "b", "c", "d", "e") == "Memory of 5 models: a, b, c and 2 more"
    absent = dataclasses.replace(SUMMARY, devices=())
    assert str(absent) == "Memory of model net, after training step 41\nNote: a note"
    assert repr(absent) == "<MemorySummary no device>"
