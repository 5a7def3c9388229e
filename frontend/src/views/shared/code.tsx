/** Code with a button that copies it. */

import { useRef, useState } from "preact/hooks";

export function Code({ children, title }: { children: string; title: string }) {
  const [said, say] = useState("Copy");
  const code = useRef<HTMLElement>(null);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(children);
      say("Copied");
    } catch {
      // A page served over plain http from another machine has no clipboard: mark the text for Ctrl+C instead.
      if (code.current) window.getSelection()?.selectAllChildren(code.current);
      say("Press Ctrl+C");
    }
    window.setTimeout(() => say("Copy"), 2000);
  };
  return (
    <section class="code">
      <header>
        <h3>{title}</h3>
        <button type="button" onClick={() => void copy()}>
          {said}
        </button>
      </header>
      <pre tabIndex={0}>
        <code ref={code}>{children}</code>
      </pre>
    </section>
  );
}
