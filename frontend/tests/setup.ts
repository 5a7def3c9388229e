import { afterAll, vi } from "vitest";

/**
 * The page marks itself idle up to two timer turns after its last work; the document of a file
 * lives until then.
 */
afterAll(async () => {
  if (typeof document === "undefined") return;
  vi.useRealTimers();
  await new Promise((resolve) => setTimeout(resolve, 60));
});
