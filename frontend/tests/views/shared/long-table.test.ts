import { expect, it } from "vitest";

import { Filler } from "../../../src/views/shared/long-table";

it("rows out of sight take the place of their number, and none takes none", () => {
  expect(Filler({ rows: 0, height: 24 })).toBeNull();
  expect(Filler({ rows: 3, height: 24 })?.props).toMatchObject({ style: { height: "72px" } });
});
