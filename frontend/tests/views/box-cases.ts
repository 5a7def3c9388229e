/**
 * Gives an element a place in the window, which the test's document does not lay out: 30 pixels
 * high, at its top.
 */
export function placed(element: HTMLElement, left: number, width: number): void {
  const box = {
    left,
    width,
    top: 0,
    height: 30,
    right: left + width,
    bottom: 30,
    x: left,
    y: 0,
    toJSON: () => ({}),
  };
  element.getBoundingClientRect = () => box;
}

/** A turn of the wheel: the test's document has wheel events without keys and places. */
export function wheelEvent(init: MouseEventInit & WheelEventInit): MouseEvent {
  const event = new MouseEvent("wheel", { bubbles: true, cancelable: true, ...init });
  return Object.assign(event, { deltaX: init.deltaX ?? 0, deltaY: init.deltaY ?? 0, deltaMode: 0 });
}
