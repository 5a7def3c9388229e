/**
 * A canvas that notes what is drawn on it: one line for each mark, with its style and its place in
 * half pixels.
 */

type Point = readonly [number, number];

const half = (value: number): number => Math.round(value * 2) / 2;

/** A short name of a text or of numbers, which changes with each of them. */
export function checksum(parts: Iterable<string | number>): string {
  let sum = 0x811c9dc5;
  for (const part of parts)
    for (const letter of `${part};`)
      sum = Math.imul(sum ^ (letter.codePointAt(0) ?? 0), 0x01000193);
  return (sum >>> 0).toString(16).padStart(8, "0");
}

/** Paths with more points than this are told by their number, their bounds and a checksum. */
const FEW = 6;

/**
 * Steps of a path, at half pixels; put into words only where it is shown, since charts are painted
 * several times.
 */
class Path {
  private readonly steps: (readonly [name: string, ...values: unknown[]])[] = [];

  constructor(data?: string) {
    if (data !== undefined) this.steps.push([data]);
  }

  step(name: string, [x, y]: Point, ...more: readonly unknown[]): void {
    this.steps.push([name, half(x), half(y), ...more]);
  }

  close(): void {
    this.steps.push(["Z"]);
  }

  toString(): string {
    const told = this.steps.map((step) =>
      step.map((value) => (typeof value === "number" ? half(value) : String(value))).join(" "),
    );
    if (told.length <= FEW) return told.join(" ");
    const places = this.steps.filter((step) => step.length > 2);
    const [x, y] = [1, 2].map((at) => places.map((step) => step[at] as number)) as [
      number[],
      number[],
    ];
    const bounds = `${Math.min(...x)} ${Math.min(...y)} to ${Math.max(...x)} ${Math.max(...y)}`;
    return `${places.length} points, ${bounds}, ${checksum(told)}`;
  }
}

/** Stands for Path2D. */
export class NotedPath {
  readonly path: Path;

  constructor(data?: string) {
    this.path = new Path(data);
  }

  moveTo(x: number, y: number): void {
    this.path.step("M", [x, y]);
  }
  lineTo(x: number, y: number): void {
    this.path.step("L", [x, y]);
  }
  arc(x: number, y: number, ...more: number[]): void {
    this.path.step("arc", [x, y], ...more);
  }
  rect(x: number, y: number, width: number, height: number): void {
    this.path.step("rect", [x, y], width, height);
  }
  roundRect(x: number, y: number, ...more: unknown[]): void {
    this.path.step("roundRect", [x, y], ...more);
  }
  closePath(): void {
    this.path.close();
  }
}

/** Stands for ImageData. */
export class Pixels {
  readonly data: Uint8ClampedArray;

  constructor(
    readonly width: number,
    readonly height: number,
  ) {
    this.data = new Uint8ClampedArray(4 * width * height);
  }
}

/** A pattern, told by what is drawn on its canvas. */
interface Pattern {
  pattern: string;
}

interface Style {
  fillStyle: string | Pattern;
  strokeStyle: string;
  globalAlpha: number;
  lineWidth: number;
  lineJoin: string;
  lineCap: string;
  font: string;
  textAlign: string;
  textBaseline: string;
  imageSmoothingEnabled: boolean;
  dash: readonly number[];
  shift: Point;
  turned: number;
  clipped: boolean;
}

const PLAIN: Style = {
  fillStyle: "#000",
  strokeStyle: "#000",
  globalAlpha: 1,
  lineWidth: 1,
  lineJoin: "miter",
  lineCap: "butt",
  font: "10px sans-serif",
  textAlign: "start",
  textBaseline: "alphabetic",
  imageSmoothingEnabled: true,
  dash: [],
  shift: [0, 0],
  turned: 0,
  clipped: false,
};

/** Pixels of a letter. */
const LETTER = 6.5;

/** Patterns by what they look like. */
const patterns = new Map<string, string>();
/** The pattern or colour of a pixel of an image. */
const tiles = new Map<number, string>();

export function forgetPatterns(): void {
  patterns.clear();
  tiles.clear();
}

/** What each pattern looks like. */
export const patternLines = (): string[] =>
  [...patterns].map(([look, name]) => `${name}: ${look}`).sort();

const paintOf = (style: string | Pattern): string =>
  typeof style === "string" ? style : style.pattern;

/**
 * What stands in some columns of an image: colours from top to bottom, and how many pixels of each.
 */
function columnsOf(words: Uint32Array, pixels: Pixels): string[] {
  return [0.02, 0.2, 0.4, 0.6, 0.8, 0.98].map((share) => {
    const column = Math.min(Math.floor(share * pixels.width), pixels.width - 1);
    const runs: { word: number; count: number }[] = [];
    for (let row = 0; row < pixels.height; row += 1) {
      const word = words[row * pixels.width + column] ?? 0;
      const last = runs.at(-1);
      if (last?.word === word) last.count += 1;
      else runs.push({ word, count: 1 });
    }
    return `  column ${column}: ${runs.map(({ word, count }) => `${word === 0 ? "nothing" : (tiles.get(word) ?? word)} ${count}`).join(", ")}`;
  });
}

/** A context of a canvas, and what is drawn. */
class Drawing extends NotedPath {
  private noted: (() => string)[] = [];
  private readonly saved: Style[] = [];
  private style: Style = { ...PLAIN };
  private current = new Path();

  constructor(readonly canvas: HTMLCanvasElement) {
    super();
    for (const name of Object.keys(PLAIN) as (keyof Style)[]) {
      if (name === "shift" || name === "dash" || name === "turned" || name === "clipped") continue;
      Object.defineProperty(this, name, {
        get: () => this.style[name],
        set: (value: never) => (this.style = { ...this.style, [name]: value }),
      });
    }
  }

  private place([x, y]: Point): Point {
    return [x + this.style.shift[0], y + this.style.shift[1]];
  }

  get lines(): string[] {
    return this.noted.map((mark) => mark());
  }

  /** `path`: stands at the end. */
  private note(mark: string, path: Path | null = null): void {
    const { globalAlpha, turned } = this.style;
    const how = `${globalAlpha === 1 ? "" : ` at ${globalAlpha.toFixed(2)}`}${turned === 0 ? "" : ` turned ${turned.toFixed(2)}`}`;
    this.noted.push(() => `${mark}${path ?? ""}${how}`);
  }

  private get pen(): string {
    const { strokeStyle, lineWidth, dash, lineJoin, lineCap } = this.style;
    return [
      strokeStyle,
      lineWidth,
      ...(dash.length > 0 ? [`[${dash.join(" ")}]`] : []),
      lineJoin,
      lineCap,
    ].join(" ");
  }

  beginPath(): void {
    this.current = new Path();
  }
  override moveTo(x: number, y: number): void {
    this.current.step("M", this.place([x, y]));
  }
  override lineTo(x: number, y: number): void {
    this.current.step("L", this.place([x, y]));
  }
  override arc(x: number, y: number, ...more: number[]): void {
    this.current.step("arc", this.place([x, y]), ...more);
  }
  override rect(x: number, y: number, width: number, height: number): void {
    this.current.step("rect", this.place([x, y]), width, height);
  }
  override roundRect(x: number, y: number, ...more: unknown[]): void {
    this.current.step("roundRect", this.place([x, y]), ...more);
  }
  override closePath(): void {
    this.current.close();
  }

  fill(given?: NotedPath): void {
    this.note(`fill ${paintOf(this.style.fillStyle)}: `, given?.path ?? this.current);
  }
  stroke(given?: NotedPath): void {
    this.note(`stroke ${this.pen}: `, given?.path ?? this.current);
  }
  clip(given?: NotedPath): void {
    this.style = { ...this.style, clipped: true };
    const path = given?.path ?? this.current;
    this.noted.push(() => `clip ${path}`);
  }
  fillRect(x: number, y: number, width: number, height: number): void {
    const { canvas } = this;
    // A canvas of the page is drawn anew.
    if (canvas.isConnected && width === canvas.width && height === canvas.height) this.noted = [];
    this.note(
      `fillRect ${paintOf(this.style.fillStyle)}: ${[...this.place([x, y]), width, height].map(half).join(" ")}`,
    );
  }
  strokeRect(x: number, y: number, width: number, height: number): void {
    this.note(
      `strokeRect ${this.pen}: ${[...this.place([x, y]), width, height].map(half).join(" ")}`,
    );
  }
  clearRect(): void {
    this.noted = [];
  }
  fillText(text: string, x: number, y: number): void {
    const { fillStyle, font, textAlign, textBaseline } = this.style;
    const size = /[\d.]+px/.exec(font)?.[0] ?? font;
    const weight = /bold|[5-9]00/.exec(font)?.[0] ?? "";
    const place = this.place([x, y]).map(half).join(" ");
    this.note(
      `text "${text}" ${paintOf(fillStyle)} ${weight}${size} ${textAlign} ${textBaseline}: ${place}`,
    );
  }
  drawImage(image: HTMLCanvasElement, x: number, y: number, width?: number, height?: number): void {
    const place = [...this.place([x, y]), width ?? image.width, height ?? image.height]
      .map(half)
      .join(" ");
    this.note(`image: ${place}${this.style.imageSmoothingEnabled ? "" : " unsmoothed"}`);
    const { noted } = drawingOf(image);
    this.noted.push(...noted);
  }
  putImageData(pixels: Pixels): void {
    // The page paints into the same pixels again.
    const words = new Uint32Array(pixels.data.buffer.slice(0));
    this.noted = [
      () =>
        [
          `  pixels ${pixels.width} ${pixels.height} ${checksum(words)}`,
          ...columnsOf(words, pixels),
        ].join("\n"),
    ];
  }
  /** Each pixel is the word of what the canvas was filled with last. */
  getImageData(_x: number, _y: number, width: number, height: number): Pixels {
    const paint = paintOf(this.style.fillStyle);
    const word = parseInt(checksum([paint]), 16);
    tiles.set(word, paint);
    const pixels = new Pixels(width, height);
    new Uint32Array(pixels.data.buffer).fill(word);
    return pixels;
  }
  createPattern(canvas: HTMLCanvasElement): Pattern {
    const look = drawingOf(canvas).lines.join("; ");
    const pattern = `pattern ${checksum([look]).slice(0, 4)}`;
    patterns.set(look, pattern);
    return { pattern };
  }
  measureText(text: string): { width: number } {
    return { width: LETTER * text.length };
  }
  save(): void {
    this.saved.push(this.style);
  }
  restore(): void {
    const before = this.saved.pop();
    if (!before) return;
    if (this.style.clipped && !before.clipped) this.noted.push(() => "end of clip");
    this.style = before;
  }
  setLineDash(dash: readonly number[]): void {
    this.style = { ...this.style, dash: dash.map(half) };
  }
  translate(x: number, y: number): void {
    this.style = { ...this.style, shift: this.place([x, y]) };
  }
  rotate(angle: number): void {
    this.style = { ...this.style, turned: this.style.turned + angle };
  }
  setTransform(): void {
    this.style = { ...this.style, shift: [0, 0], turned: 0 };
  }
}

const drawings = new WeakMap<HTMLCanvasElement, Drawing>();

/** Stands for a canvas's context. */
export function drawingOf(canvas: HTMLCanvasElement): Drawing {
  const known = drawings.get(canvas);
  if (known) return known;
  const made = new Drawing(canvas);
  drawings.set(canvas, made);
  return made;
}

/** More marks than this in a row of one kind are told by their number and a checksum. */
const MANY = 24;

/** The marks of a canvas; long rows of the same kind as one line. */
export function marksOf(canvas: HTMLCanvasElement): string[] {
  const shown: string[] = [];
  const lines = drawingOf(canvas).lines.flatMap((line) => line.split("\n"));
  for (let from = 0; from < lines.length;) {
    const kind = (lines[from] ?? "").split(/[ :]/, 1)[0] ?? "";
    let to = from + 1;
    while (lines[to]?.split(/[ :]/, 1)[0] === kind) to += 1;
    const row = lines.slice(from, to);
    if (kind !== "" && row.length > MANY) {
      shown.push(
        ...row.slice(0, MANY / 3),
        `${row.length} times ${kind}, ${checksum(row)}`,
        ...row.slice(-MANY / 3),
      );
    } else shown.push(...row);
    from = to;
  }
  return shown;
}
