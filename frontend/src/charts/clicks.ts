/** Tells clicks from double-clicks. */

import { later } from "../lib/activity";

/** Longer than the second click of a double-click takes. */
const WAIT_MS = 400;

/** Farther than the pointer moves between the clicks of a double-click, in CSS pixels. */
const STILL = 4;

interface Waiting {
  x: number;
  y: number;
  /** Ends the waiting. */
  end: () => void;
  act: () => void;
}

/** A click acts once it cannot become a double-click any more: after a while, or as soon as the pointer has moved on. */
export class Clicks {
  private waiting: Waiting | null = null;

  click(event: MouseEvent, act: () => void): void {
    this.cancel();
    // The second click of a double-click does nothing.
    if (event.detail > 1) return;
    this.waiting = { x: event.clientX, y: event.clientY, end: later(WAIT_MS, () => this.settle()), act };
  }

  moved(event: MouseEvent): void {
    const { waiting } = this;
    if (waiting && Math.max(Math.abs(event.clientX - waiting.x), Math.abs(event.clientY - waiting.y)) > STILL) this.settle();
  }

  /** Acts now if a click waits. */
  settle(): void {
    const { waiting } = this;
    this.cancel();
    waiting?.act();
  }

  cancel(): void {
    const { waiting } = this;
    this.waiting = null;
    waiting?.end();
  }
}
