/** About how many bytes of memory a value holds. */

/** Of an object or an array itself, and of each of its fields. */
const OBJECT_BYTES = 32;
const FIELD_BYTES = 8;

/** Of plain data: what it holds more than once counts once, and every character of a text one byte. */
export function footprint(value: unknown): number {
  const counted = new Set<object>();
  const left: unknown[] = [value];
  let bytes = 0;
  while (left.length > 0) {
    const one = left.pop();
    if (typeof one === "string") bytes += one.length;
    if (typeof one !== "object" || one === null || counted.has(one)) continue;
    counted.add(one);
    if (ArrayBuffer.isView(one)) left.push(one.buffer);
    else if (one instanceof ArrayBuffer) bytes += one.byteLength;
    else {
      const held = Array.isArray(one) ? one : Object.values(one);
      bytes += OBJECT_BYTES + held.length * FIELD_BYTES;
      // Numbers hold nothing else, and there may be very many.
      for (const part of held) if (typeof part !== "number") left.push(part);
    }
  }
  return bytes;
}
