// @vitest-environment happy-dom
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, describe, expect, it, vi } from "vitest";

import { AS_RECORDED, conditionHints, type Conditions } from "../../../src/model/what-if";
import { DEFAULTS } from "../../../src/state/address";
import type { Store } from "../../../src/state/store";
import { StoreContext } from "../../../src/views/shared/context";
import { ConditionsForm, type ConditionFault } from "../../../src/views/what-if/conditions";

function drawn(
  conditions: Partial<Conditions> = {},
  recordedOnly = false,
  fault: ConditionFault | null = null,
) {
  vi.useFakeTimers();
  const choices = { ...DEFAULTS, conditions: { ...AS_RECORDED, ...conditions } };
  const store = { choices: { value: choices, peek: () => choices }, choose: vi.fn(), recordedOnly };
  act(() =>
    render(
      h(
        StoreContext.Provider,
        { value: store as unknown as Store },
        h(ConditionsForm, {
          hints: conditionHints(null, AS_RECORDED),
          faults: fault ? [fault] : [],
        }),
      ),
      document.body,
    ),
  );
  const field = (name: string): HTMLInputElement =>
    document.querySelector(`[name=${name}]`) as HTMLInputElement;
  const type = (name: string, value: string): void => {
    field(name).value = value;
    act(() => void field(name).dispatchEvent(new Event("input", { bubbles: true })));
  };
  const chosen = (): unknown[] =>
    store.choose.mock.calls.map(([one]) => (one as { conditions: Conditions }).conditions);
  return { store, field, type, chosen };
}

afterEach(() => {
  render(null, document.body);
  vi.useRealTimers();
});

describe("a condition", () => {
  it("applies after a pause of the keys, once", () => {
    const { type, chosen } = drawn();
    type("batch_size", "1");
    vi.advanceTimersByTime(500);
    type("batch_size", "16");
    vi.advanceTimersByTime(500);
    expect(chosen()).toEqual([]);
    vi.advanceTimersByTime(300);
    expect(chosen()).toEqual([{ ...AS_RECORDED, batch_size: "16" }]);
  });

  it("applies at once with Enter or when the field is left, and not if nothing changed", () => {
    const { field, type, chosen } = drawn({ capacity: "8GiB" });
    act(() => void field("capacity").dispatchEvent(new FocusEvent("blur")));
    expect(chosen()).toEqual([]);
    type("freeze", "block1/*");
    act(
      () =>
        void field("freeze").dispatchEvent(
          new KeyboardEvent("keydown", { key: "a", bubbles: true }),
        ),
    );
    expect(chosen()).toEqual([]);
    act(
      () =>
        void field("freeze").dispatchEvent(
          new KeyboardEvent("keydown", { key: "Enter", bubbles: true }),
        ),
    );
    expect(chosen()).toEqual([{ ...AS_RECORDED, capacity: "8GiB", freeze: "block1/*" }]);
    vi.advanceTimersByTime(1000);
    expect(chosen().length).toBe(1);
  });

  it("is chosen among those that there are, and the one of the address", () => {
    const { field, chosen } = drawn({ precision: "int8" });
    const options = [...field("precision").querySelectorAll("option")].map(({ value }) => value);
    expect([options[0], options[1], new Set(options).size]).toEqual(["", "int8", options.length]);
    expect([...field("optimizer").querySelectorAll("option")].map(({ value }) => value)[0]).toBe(
      "",
    );
    field("optimizer").value = "sgd";
    act(() => void field("optimizer").dispatchEvent(new Event("change", { bubbles: true })));
    expect(chosen()).toEqual([{ ...AS_RECORDED, precision: "int8", optimizer: "sgd" }]);
  });

  it("says beside itself what is wrong with it", () => {
    const { field } = drawn({ batch_size: "0" }, false, {
      parameter: "batch_size",
      sentence: "batch_size must be 1 or more.",
    });
    expect(field("batch_size").getAttribute("aria-invalid")).toBe("true");
    const said = document.getElementById(
      field("batch_size").getAttribute("aria-describedby") ?? "",
    );
    expect([said?.textContent, said?.getAttribute("role")]).toEqual([
      "batch_size must be 1 or more.",
      "alert",
    ]);
    expect(field("capacity").hasAttribute("aria-invalid")).toBe(false);
    expect(document.querySelectorAll("[role=alert]").length).toBe(1);
    drawn({}, false, { parameter: null, sentence: "It is unknown." });
    expect(document.querySelectorAll("[role=alert]").length).toBe(0);
  });
});

describe("the form", () => {
  it("goes back to what was recorded, if anything is changed", () => {
    const reset = (): HTMLElement => document.querySelector("form > button") as HTMLElement;
    drawn();
    expect(reset().style.visibility).toBe("hidden");
    const { chosen } = drawn({ batch_size: "8" });
    expect(reset().style.visibility).toBe("visible");
    act(() => reset().click());
    expect(chosen()).toEqual([AS_RECORDED]);
  });

  it("of a report shows the recorded conditions only", () => {
    const { field } = drawn({ batch_size: "8" }, true);
    expect([
      field("batch_size").value,
      field("batch_size").disabled,
      field("optimizer").disabled,
    ]).toEqual(["", true, true]);
    expect(document.querySelector("form")?.textContent).toContain("need TensorBoard");
  });
});
