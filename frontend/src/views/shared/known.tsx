/** How a figure is known, one click away. */

import type { ComponentChildren } from "preact";

export const Known = ({ children }: { children: ComponentChildren }) => (
  <details class="known">
    <summary>How is this known?</summary>
    {children}
  </details>
);
