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
    await expect(await shown(report, address, opening)).toMatchFileSnapshot(fileOf(name));
  },
  PATIENCE,
);

it("keeps no text of a case that is gone", () => {
  const known = CASES.map(([name]) => fileOf(name));
  const kept = files.readdirSync(`${import.meta.dirname}/shown`).map((file) => `./shown/${file}`);
  expect(kept.filter((file) => !known.includes(file))).toEqual([]);
});
