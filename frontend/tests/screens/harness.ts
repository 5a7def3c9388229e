/**
 * The page on stored answers, in a document of a fixed size, time and zone, with what it shows as
 * text.
 */

import { h, render } from "preact";
import { vi } from "vitest";

import type { Source } from "../../src/api/source";
import { NotedPath, Pixels, checksum, drawingOf, forgetPatterns, patternLines } from "./drawing";
import { difference, shownText } from "./shown-text";
import type { Oom } from "../../src/schema";

// An import would give the browser's empty module: the document is a browser's.
export const files = process.getBuiltinModule("node:fs");

const REPORTS = ["samples", "tasks", "devices", "recorded"] as const;
export type Report = (typeof REPORTS)[number];

const answers = Object.fromEntries(
  REPORTS.map((name) => [
    name,
    files.readFileSync(
      `${import.meta.dirname}/../../../tests/fixtures/answers/${name}.json`,
      "utf8",
    ),
  ]),
) as Record<Report, string>;

/** Pixels of every element that has no size of its own. */
let size = { width: 960, height: 320 };

const pixels = (text: string): number | null => (text.endsWith("px") ? parseFloat(text) : null);

function boxOf(element: Element): DOMRect {
  const style = (element as HTMLElement).style;
  const [width, height] = [
    pixels(style?.width ?? "") ?? size.width,
    pixels(style?.height ?? "") ?? size.height,
  ];
  return new DOMRect(pixels(style?.left ?? "") ?? 0, pixels(style?.top ?? "") ?? 0, width, height);
}

/** Tells of the size of an element once. */
class SizeTold {
  constructor(private readonly tell: ResizeObserverCallback) {}
  observe(target: Element): void {
    const told = (): void =>
      this.tell([{ target, contentRect: boxOf(target) } as unknown as ResizeObserverEntry], this);
    setTimeout(told, 0);
  }
  unobserve(): void {}
  disconnect(): void {}
}

/** Times are this much shorter: nobody waits for a pause of a typing user. */
const FASTER = 50;

/** Files that the user downloaded. */
const saved: Blob[] = [];

const real = { setTimeout: globalThis.setTimeout, zone: process.env.TZ };

/** Replaces what depends on the machine and on a layout, until `restore`. */
export function replace(): void {
  process.env.TZ = "UTC";
  vi.stubGlobal("setTimeout", (work: () => void, milliseconds = 0) =>
    real.setTimeout(work, milliseconds / FASTER),
  );
  vi.stubGlobal("requestAnimationFrame", (work: (now: number) => void) =>
    real.setTimeout(() => work(0), 0),
  );
  vi.stubGlobal("cancelAnimationFrame", (timer: number) => clearTimeout(timer));
  vi.stubGlobal("devicePixelRatio", 1);
  vi.stubGlobal("ResizeObserver", SizeTold);
  vi.stubGlobal("Path2D", NotedPath);
  vi.stubGlobal("ImageData", Pixels);
  vi.spyOn(URL, "createObjectURL").mockImplementation((file) => `blob:${saved.push(file as Blob)}`);
  vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(() => undefined);
  HTMLCanvasElement.prototype.toBlob = function (give): void {
    give(new Blob([drawingOf(this).lines.join("\n")]));
  };
  vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockImplementation(function (
    this: HTMLCanvasElement,
  ) {
    return drawingOf(this) as never;
  });
  vi.spyOn(Element.prototype, "getBoundingClientRect").mockImplementation(function (this: Element) {
    return boxOf(this);
  });
  for (const name of ["clientWidth", "clientHeight"] as const)
    vi.spyOn(HTMLElement.prototype, name, "get").mockImplementation(function (this: HTMLElement) {
      return name === "clientWidth" ? boxOf(this).width : boxOf(this).height;
    });
}

export function restore(): void {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  if (real.zone === undefined) delete process.env.TZ;
  else process.env.TZ = real.zone;
}

/** The page's modules, made anew: those that other tests used may wait for ever for an answer. */
async function modules() {
  vi.resetModules();
  return {
    ...(await import("../../src/api/embedded")),
    ...(await import("../../src/state/store")),
    ...(await import("../../src/views/app/app")),
  };
}

let page: Promise<Awaited<ReturnType<typeof modules>>> | null = null;

const turn = (): Promise<void> => new Promise((resolve) => real.setTimeout(resolve, 0));

/**
 * Waits until the page says that it is idle, and has said so for some turns: effects run after a
 * frame.
 */
async function idle(): Promise<void> {
  for (let quiet = 0, turns = 0; quiet < 4; turns += 1) {
    await turn();
    quiet = document.documentElement.dataset.idle === "true" ? quiet + 1 : 0;
    if (turns > 5000) throw new Error("The page is not idle.");
  }
}

function found(selector: string, text?: string): HTMLElement {
  const all = [...document.querySelectorAll<HTMLElement>(selector)];
  const one =
    text === undefined
      ? all[0]
      : all.find(({ textContent, title, ariaLabel }) =>
          [textContent?.trim(), title, ariaLabel].includes(text),
        );
  if (!one) throw new Error(`The page has no ${selector} ${text ?? ""}`);
  return one;
}

/** Something that a user does. */
type Act = () => void | Promise<void>;

const press =
  (selector: string, ...keys: string[]): Act =>
  async () => {
    const element = found(selector);
    element.focus();
    for (const key of keys) {
      const given = {
        key: key.replace("Shift+", ""),
        shiftKey: key.startsWith("Shift+"),
        bubbles: true,
        cancelable: true,
      };
      (document.activeElement ?? element).dispatchEvent(new KeyboardEvent("keydown", given));
      await idle();
    }
  };

/** A pointer's event at a place of an element. */
const point =
  (selector: string, name: string, x: number, y: number, more: object = {}): Act =>
  () => {
    const element = found(selector);
    const { left, top } = boxOf(element);
    const given = { clientX: left + x, clientY: top + y, bubbles: true, cancelable: true, ...more };
    const event = name.startsWith("pointer")
      ? new PointerEvent(name, given)
      : new MouseEvent(name, given);
    // The document's wheel has no place of the pointer.
    element.dispatchEvent(
      name === "wheel"
        ? Object.assign(event, { deltaX: 0, deltaY: 0, deltaMode: 0, ...more })
        : event,
    );
  };

export const user = {
  press,
  point,
  click:
    (selector: string, text?: string): Act =>
    () =>
      found(selector, text).click(),
  scroll:
    (selector: string, top: number): Act =>
    () => {
      const element = found(selector);
      element.scrollTop = top;
      element.dispatchEvent(new Event("scroll"));
    },
  /** Waits for what comes after a while though the page is idle, such as a tip. */
  expect:
    (selector: string): Act =>
    async () => {
      for (let turns = 0; !document.querySelector(selector); turns += 1) {
        if (turns > 5000) throw new Error(`The page has no ${selector}.`);
        await turn();
      }
    },
  /** Types into a field, or chooses of a list. */
  enter:
    (selector: string, value: string): Act =>
    () => {
      const field = found(selector) as HTMLInputElement;
      field.value = value;
      for (const name of ["input", "change"])
        field.dispatchEvent(new Event(name, { bubbles: true }));
    },
  /**
   * Presses the button at one place of an element and releases it at another; `name` begins the
   * events' names.
   */
  drag:
    (
      selector: string,
      from: readonly [number, number],
      to: readonly [number, number],
      more: object = {},
      name = "mouse",
    ): Act =>
    async () => {
      const given = { button: 0, pointerId: 1, ...more };
      for (const [event, place] of [
        ["move", from],
        ["down", from],
        ["move", to],
        ["up", to],
      ] as const) {
        await point(
          selector,
          name + event,
          ...place,
          event === "move" && place === from ? {} : given,
        )();
        await idle();
      }
    },
};

/** So much of a file is shown, in characters. */
const FILE = 1200;

const fileText = (text: string): string => `file, ${checksum([text])}: ${text.slice(0, FILE)}\n`;

/** Not shown of a screen that is not whole. */
const FRAME = [".skip", "nav.runs", ".runs-button", ".bar-end", ".tabs", ".answers"];

/** Questions that get an error in place of an answer. */
const refusing = (...names: readonly (keyof Source)[]): Partial<Source> =>
  Object.fromEntries(
    names.map((name) => [name, () => Promise.reject(new Error(`No answer: ${name}.`))]),
  );

const sources = new Map<Report, Source>();

/** Opens an address on a report's data, lets the user act, and gives what is shown. */
async function screen(
  report: Report,
  address: string,
  { acts = [], whole = false, width = 960, live = false, refused = [], failure }: Opening,
): Promise<string> {
  size = { width, height: 320 };
  forgetPatterns();
  page ??= modules();
  const { App, createStore, embeddedSource } = await page;
  window.history.replaceState(null, "", `#${address}`);
  const stored = sources.get(report) ?? embeddedSource(answers[report]);
  sources.set(report, stored);
  const ooms: Source["ooms"] = async (...of) =>
    (await stored.ooms(...of)).map((oom) => ({ ...oom, ...failure }));
  const store = createStore({ ...stored, ooms, recordedOnly: !live, ...refusing(...refused) });
  void store.reload();
  render(h(App, { store }), document.body);
  try {
    await idle();
    for (const act of acts) {
      await act();
      await idle();
    }
    const files = await Promise.all(
      saved.splice(0).map(async (file) => fileText(await file.text())),
    );
    const patterns = whole ? patternLines().map((line) => `${line}\n`) : [];
    return [shownText(document.body, whole ? [] : FRAME), ...patterns, ...files].join("");
  } finally {
    render(null, document.body);
    document.body.replaceChildren();
    await idle();
  }
}

export interface Opening {
  /**
   * What is said or drawn there, in place of a stored screen. None: what is shown is what was shown
   * before.
   */
  shows?: readonly string[];
  /**
   * An address; what is shown is told by what differs from it. With acts or a width and without it,
   * from the same address.
   */
  since?: string;
  acts?: readonly Act[];
  /** Whether the frame is shown as well: runs, tabs and answers. */
  whole?: boolean;
  /**
   * Whether the page may ask what the report does not answer; it gets the answer to the recorded
   * question.
   */
  live?: boolean;
  /** Questions that get an error. */
  refused?: readonly (keyof Source)[];
  /** What is otherwise in the answer on each failure. */
  failure?: Partial<Oom>;
  /** Pixels of the drawings. */
  width?: number;
}

const known = new Map<string, string>();

/**
 * What is shown at an address, or what differs there from another one or from before the user
 * acted.
 */
export async function shown(
  report: Report,
  address: string,
  opening: Opening = {},
): Promise<string> {
  const { since = opening.acts || opening.width ? address : undefined, whole = false } = opening;
  const live = opening.live === true && opening.since === undefined;
  const now = await screen(report, address, opening);
  if (since === undefined) return now;
  const key = JSON.stringify([report, since, whole, live]);
  const old = known.get(key) ?? (await screen(report, since, { whole, live }));
  known.set(key, old);
  return difference(old, now);
}

export type Case = [name: string, report: Report, address: string, opening?: Opening];
