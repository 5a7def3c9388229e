"""The messages of a profile (tsl/profiler/protobuf/xplane.proto), to write profiles and to check
what is read."""

from tb_memplugin.importers.wire import message_classes

MESSAGES = message_classes(
    "test_profiles",
    {
        "XStat": "metadata_id 1 int64, double_value 2 double, uint64_value 3 uint64, int64_value 4 "
        "int64, str_value 5 bytes, bytes_value 6 bytes, ref_value 7 uint64",
        "XEvent": "metadata_id 1 int64, offset_ps 2 int64, duration_ps 3 int64, stats 4 XStat[]",
        "XLine": "id 1 int64, name 2 bytes, timestamp_ns 3 int64, events 4 XEvent[], "
        "display_name 11 bytes",
        "XEventMetadata": "id 1 int64, name 2 bytes, display_name 4 bytes, stats 5 XStat[]",
        "XStatMetadata": "id 1 int64, name 2 bytes",
        "EventMetadataEntry": "key 1 int64, value 2 XEventMetadata",
        "StatMetadataEntry": "key 1 int64, value 2 XStatMetadata",
        "XPlane": "id 1 int64, name 2 bytes, lines 3 XLine[], event_metadata 4 "
        "EventMetadataEntry[], stat_metadata 5 StatMetadataEntry[]",
        "XSpace": "planes 1 XPlane[], hostnames 4 bytes[]",
    },
)
