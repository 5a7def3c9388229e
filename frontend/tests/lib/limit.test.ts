import { describe, expect, it } from "vitest";

import { limiter } from "../../src/lib/limit";

describe("limiter", () => {
  it("runs no more at once than it may, and all in the end", async () => {
    const limit = limiter(2);
    let running = 0;
    let most = 0;
    const results = await Promise.all(
      Array.from({ length: 7 }, (_, index) =>
        limit(async () => {
          running += 1;
          most = Math.max(most, running);
          await Promise.resolve();
          running -= 1;
          return index;
        }),
      ),
    );
    expect(results).toEqual([0, 1, 2, 3, 4, 5, 6]);
    expect(most).toBe(2);
  });
});
