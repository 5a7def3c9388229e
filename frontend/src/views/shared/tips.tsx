/**
 * The tooltip of every element with `data-tip`: after a delay under the pointer, at once with the
 * keyboard.
 */

import { useEffect, useRef, useState } from "preact/hooks";

import { formatKnown } from "../../lib/bytes";
import { Sentence } from "./states";

const DELAY_MS = 250;
const WIDTH = 360;
const ID = "tip";

export const tipOf = (
  bytes: number | null,
  ...lines: readonly (string | null | undefined)[]
): string => [formatKnown(bytes), ...lines].filter(Boolean).join("\n");

/** Attributes of an element that shows a figure. */
export const figured = (
  name: string | number | undefined,
  bytes: number | null,
  ...lines: readonly (string | null | undefined)[]
) => ({ "data-figure": name, "data-bytes": bytes ?? "", "data-tip": tipOf(bytes, ...lines) });

interface Shown {
  lines: string[];
  left: number;
  /** Of the tooltip's upper edge, or of its lower one if it stands above. */
  top: number | null;
  bottom: number | null;
}

function placed(target: Element): Shown {
  const box = target.getBoundingClientRect();
  const lines = (target.getAttribute("data-tip") ?? "").split("\n");
  const left = Math.max(Math.min(box.left, window.innerWidth - WIDTH - 12), 4);
  const below = box.bottom + 24 * lines.length + 24 < window.innerHeight;
  return { lines, left, top: below ? box.bottom + 6 : null, bottom: below ? null : box.top - 6 };
}

const tipped = (target: EventTarget | null): Element | null =>
  target instanceof Element ? target.closest("[data-tip]") : null;

function useTip(): Shown | null {
  const [shown, setShown] = useState<Shown | null>(null);
  const current = useRef<Element | null>(null);
  useEffect(() => {
    let timer = 0;
    const hide = () => {
      window.clearTimeout(timer);
      current.current?.removeAttribute("aria-describedby");
      current.current = null;
      setShown(null);
    };
    const show = (target: Element) => {
      current.current?.removeAttribute("aria-describedby");
      current.current = target;
      target.setAttribute("aria-describedby", ID);
      setShown(placed(target));
    };
    const over = (event: Event) => {
      const target = tipped(event.target);
      if (target === current.current && target !== null) return;
      hide();
      if (target) timer = window.setTimeout(() => target.isConnected && show(target), DELAY_MS);
    };
    const focus = (event: Event) => {
      const target = tipped(event.target);
      hide();
      if (target?.matches(":focus-visible, :has(:focus-visible)")) show(target);
    };
    const key = (event: KeyboardEvent) => {
      if (event.key === "Escape") hide();
    };
    const listeners: [string, EventListener][] = [
      ["pointerover", over],
      ["pointerdown", hide],
      ["focusin", focus],
      ["focusout", hide],
      ["scroll", hide],
      ["keydown", key as EventListener],
    ];
    for (const [name, listener] of listeners) document.addEventListener(name, listener, true);
    document.documentElement.addEventListener("pointerleave", hide);
    return () => {
      window.clearTimeout(timer);
      for (const [name, listener] of listeners) document.removeEventListener(name, listener, true);
      document.documentElement.removeEventListener("pointerleave", hide);
    };
  }, []);
  return shown;
}

export function Tips() {
  const shown = useTip();
  if (!shown) return null;
  const { lines, left, top, bottom } = shown;
  const place = {
    // Not by its edges: a tip that follows the pointer is no shift of the layout.
    transform: `translate(${left}px, ${top ?? bottom}px) translateY(${top === null ? "-100%" : "0"})`,
    maxWidth: `${WIDTH}px`,
  };
  return (
    <div class="tip" id={ID} role="tooltip" style={place}>
      {lines.map((line, index) => (
        <span key={index}>
          <Sentence of={line} />
        </span>
      ))}
    </div>
  );
}
