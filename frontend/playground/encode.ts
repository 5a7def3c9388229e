/**
 * The binary answers, written: the counterpart of src/api/columns.ts, for the playground and tests.
 */

export function encodeColumns(
  head: object,
  columns: Record<string, ArrayLike<number>>,
): Uint8Array<ArrayBuffer> {
  const names = Object.keys(columns);
  const rows = columns[names[0] ?? ""]?.length ?? 0;
  const json = new TextEncoder().encode(JSON.stringify({ rows, columns: names, ...head }));
  const start = Math.ceil((4 + json.length) / 8) * 8;
  const buffer = new ArrayBuffer(start + rows * names.length * 8);
  new DataView(buffer).setUint32(0, json.length, true);
  new Uint8Array(buffer, 4).set(json);
  names.forEach((name, index) =>
    new Float64Array(buffer, start + index * rows * 8, rows).set(
      columns[name] as ArrayLike<number>,
    ),
  );
  return new Uint8Array(buffer);
}
