/** Clicks act at once; a double-click undoes what its first click did. */

/** Restores what was there before a click. */
export type Undo = () => void;

export class Clicks {
  private undo: Undo | null = null;

  /** The second click of a double-click does nothing, neither do further ones. */
  click(event: MouseEvent, act: () => Undo | null): void {
    if (event.detail <= 1) this.undo = act();
  }

  doubleClick(): void {
    const { undo } = this;
    this.undo = null;
    undo?.();
  }
}
