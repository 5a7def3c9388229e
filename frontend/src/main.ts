/**
 * The module that TensorBoard imports. TensorBoard calls `render` in an empty document; a saved
 * report renders itself.
 */

import { h, render as mount } from "preact";

import { embeddedSource, REPORT_ID } from "./api/embedded";
import { httpSource } from "./api/source";
import { createStore, keepUp } from "./state/store";
import { App } from "./views/app/app";

const SHEETS = import.meta.glob<string>("./**/*.css", {
  eager: true,
  query: "?inline",
  import: "default",
});
/** Shared parts come before the views, which may differ from them. */
const FIRST = ["theme", "shared", "app", "layers"];
const placeOf = (path: string): number =>
  FIRST.findIndex((folder) => path.includes(`/${folder}/`)) >>> 0;
const styles = Object.keys(SHEETS)
  .sort((a, b) => placeOf(a) - placeOf(b))
  .map((path) => SHEETS[path]);

const report = document.getElementById(REPORT_ID);

export function render(): void {
  const sheet = document.createElement("style");
  sheet.textContent = styles.join("");
  document.head.append(sheet);
  document.documentElement.lang = "en";
  // A report says in its own title what it is about.
  if (!report) document.title = "Memory";
  const store = createStore(report ? embeddedSource(report.textContent ?? "") : httpSource);
  keepUp(store, report === null);
  mount(h(App, { store }), document.body);
}

if (report) render();
