// @vitest-environment happy-dom
/**
 * What the page shows at many addresses, compared with what it showed before: read the difference
 * after an intended change.
 */

import { afterAll, beforeAll, expect, it } from "vitest";

import { CASES } from "./cases";
import { files, replace, restore, shown, type Case } from "./harness";

const fileOf = (name: string): string => `./shown/${name.replaceAll(/[^\w]+/g, "_")}.txt`;

/** Milliseconds for a screen on a machine that is busy with other work. */
const PATIENCE = 30_000;

beforeAll(replace);
afterAll(restore);

it.each<Case>(CASES)(
  "%s",
  async (name, report, address, opening) => {
    const text = await shown(report, address, opening);
    const said = opening?.shows;
    if (!said) await expect(text).toMatchFileSnapshot(fileOf(name));
    else if (said.length === 0) expect(text.trim()).toBe("");
    else for (const part of said) expect(text).toContain(part);
  },
  PATIENCE,
);

it("are few, and none is of a case that is gone", () => {
  const known = CASES.filter(([, , , opening]) => !opening?.shows).map(([name]) => fileOf(name));
  const kept = files.readdirSync(`${import.meta.dirname}/shown`).map((file) => `./shown/${file}`);
  expect(kept.sort()).toEqual(known.sort());
  expect(kept.length, "stored screens").toBeLessThanOrEqual(80);
});
