/** The module that TensorBoard imports. TensorBoard calls `render` in an empty document; a saved report renders itself. */

import { h, render as mount } from "preact";
import plotStyle from "uplot/dist/uPlot.min.css?inline";

import { embeddedSource, REPORT_ID } from "./api/embedded";
import { httpSource } from "./api/http";
import { createStore } from "./state/store";
import { keepUp } from "./state/upkeep";
import answerStyle from "./theme/answers.css?inline";
import devicesStyle from "./theme/devices.css?inline";
import stepStyle from "./theme/step.css?inline";
import style from "./theme/style.css?inline";
import viewStyle from "./theme/views.css?inline";
import { App } from "./views/app/app";

const report = document.getElementById(REPORT_ID);

export function render(): void {
  const sheet = document.createElement("style");
  sheet.textContent = plotStyle + style + viewStyle + answerStyle + stepStyle + devicesStyle;
  document.head.append(sheet);
  document.documentElement.lang = "en";
  // A report says in its own title what it is about.
  if (!report) document.title = "Memory";
  const store = createStore(report ? embeddedSource(report.textContent ?? "") : httpSource);
  keepUp(store, report === null);
  mount(h(App, { store }), document.body);
}

if (report) render();
