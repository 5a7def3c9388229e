/** The module that TensorBoard imports. TensorBoard calls `render` in an empty document; a saved report renders itself. */

import { h, render as mount } from "preact";
import plotStyle from "uplot/dist/uPlot.min.css?inline";

import { embeddedSource, REPORT_ID } from "./api/embedded";
import { httpSource } from "./api/http";
import { createStore, keepUp } from "./state/store";
import { App } from "./views/app/app";
import { STYLES } from "./views/app/styles";

const report = document.getElementById(REPORT_ID);

export function render(): void {
  const sheet = document.createElement("style");
  sheet.textContent = plotStyle + STYLES;
  document.head.append(sheet);
  document.documentElement.lang = "en";
  // A report says in its own title what it is about.
  if (!report) document.title = "Memory";
  const store = createStore(report ? embeddedSource(report.textContent ?? "") : httpSource);
  keepUp(store, report === null);
  mount(h(App, { store }), document.body);
}

if (report) render();
